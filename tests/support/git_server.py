"""A git repository over HTTP, served by git's own backend, for the length of a test."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.lanes import require_lane


def require_git() -> None:
    """The lane of tests that need git and its HTTP backend."""
    executable = shutil.which("git")
    backend = executable and Path(_git("--exec-path").strip()) / "git-http-backend"
    require_lane("git", bool(backend and backend.exists()), "git or git-http-backend is missing")


def _git(*arguments: str, cwd: Path | None = None, given: bytes | None = None) -> str:
    environment = {
        **os.environ, "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@a", "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@a", "GIT_CONFIG_GLOBAL": "/dev/null",
    }  # fmt: skip
    done = subprocess.run(
        ["git", *arguments], cwd=cwd, env=environment, input=given, check=True, capture_output=True
    )
    return done.stdout.decode()


class Repository:
    """A bare repository that is filled commit by commit."""

    def __init__(self, folder: Path) -> None:
        self.work = folder / "work"
        self.bare = folder / "served" / "agent.git"
        self.bare.parent.mkdir(parents=True)
        _git("init", "--quiet", "--initial-branch=main", str(self.work))
        _git("init", "--quiet", "--bare", "--initial-branch=main", str(self.bare))
        _git("config", "uploadpack.allowReachableSHA1InWant", "true", cwd=self.bare)

    def commit(self, files: Mapping[str, str | bytes], links: Mapping[str, str] = {}) -> str:
        """Add some files; returns the commit's name."""
        for name, content in files.items():
            path = self.work / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        for name, target in links.items():
            (self.work / name).symlink_to(target)
        _git("add", "--all", "--force", cwd=self.work)
        _git("commit", "--quiet", "--message", "work", cwd=self.work)
        _git("push", "--quiet", "--force", str(self.bare), "HEAD:main", "--tags", cwd=self.work)
        return _git("rev-parse", "HEAD", cwd=self.work).strip()

    def git(self, *arguments: str) -> str:
        return _git(*arguments, cwd=self.work)


class GitServer:
    """Where repositories are served, and what was asked of it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked: list[str] = []
        self.redirect_to = ""


@contextmanager
def git_server(root: Path) -> Iterator[GitServer]:
    """Serve the repositories below a folder; yields where."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def log_message(self, *_: object) -> None: ...

        def _answer(self) -> None:
            served.asked.append(self.path)
            if served.redirect_to:
                self.send_response(302)
                self.send_header("Location", served.redirect_to + self.path)
                self.end_headers()
                return
            path, _, query = self.path.partition("?")
            environment = {
                **os.environ, "GIT_PROJECT_ROOT": str(root), "GIT_HTTP_EXPORT_ALL": "1",
                "PATH_INFO": path, "QUERY_STRING": query, "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""), "REMOTE_USER": "",
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                "HTTP_GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory",
                "GIT_CONFIG_VALUE_0": "*",
            }  # fmt: skip
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            done = subprocess.run(
                ["git", "http-backend"], env=environment, input=body, capture_output=True
            )
            head, _, content = done.stdout.partition(b"\r\n\r\n")
            lines = [line.partition(": ")[::2] for line in head.decode().split("\r\n") if line]
            headers = dict(lines)
            self.send_response(int(headers.pop("Status", "200").split()[0]))
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served = GitServer(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        thread.join(5)
        server.server_close()
