"""Source from a git repository, fetched without ever checking it out.

Nothing of the repository is believed: no hook, filter, attribute, submodule or configuration of it
has a chance to act, because its files are read as objects and never written. git itself runs
without this process's environment, speaks HTTP and nothing else, follows no redirect, and connects
to the address that was checked.
"""

from __future__ import annotations

import asyncio
import os
import posixpath
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from schemas.agent_document import GitDocument
from services.runtime.addresses import AllowList, TargetRefused, literal
from services.runtime.outbound import Resolve, check_url, resolve_by_system
from services.runtime.sources.files import FileSet, SourceRefused, is_skipped, shown

MAX_REPOSITORY_BYTES = 128 * 1024 * 1024
MAX_LISTING_BYTES = 4 * 1024 * 1024
TIMEOUT_S = 60.0
_LOOK_S = 0.05
_CONFIG = (
    "protocol.allow=never",
    "protocol.https.allow=always",
    "protocol.http.allow=always",
    "http.followRedirects=false",
    "http.lowSpeedLimit=1000",
    "http.lowSpeedTime=20",
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.symlinks=false",
    "credential.helper=",
    "transfer.fsckObjects=true",
    "fetch.recurseSubmodules=false",
    "submodule.recurse=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "pack.windowMemory=64m",
    "pack.threads=1",
)


async def fetch_git(
    git: GitDocument,
    *,
    allow: AllowList | None = None,
    resolve: Resolve = resolve_by_system,
    timeout_s: float = TIMEOUT_S,
    monotonic: Callable[[], float] = time.monotonic,
) -> tuple[str, dict[str, bytes]]:
    """Where it comes from, as `URL@COMMIT`, and the files of the folder that is asked for.

    `allow` is what may be reached besides the public internet. Nothing is left on disk.

    Raises:
        SourceRefused: no git here, a target that may not be reached, no such ref or folder, too
            large, too slow, or an entry that is no plain file.
    """
    executable = shutil.which("git")
    if executable is None:
        raise SourceRefused("source in a git repository needs git, which is not installed here")
    url = _plain(git.url)
    pin = await _pinned(url, allow or AllowList(), resolve)
    work = _Repository(executable, pin, timeout_s, monotonic)
    return await asyncio.to_thread(work.read, url, git.ref, git.folder)


def _plain(url: str) -> str:
    """The URL without user, query and fragment, where secrets stand."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


async def _pinned(url: str, allow: AllowList, resolve: Resolve) -> Sequence[str]:
    """Configuration that makes git connect to an address that was checked."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        check_url(allow, url)
        if literal(host) is not None:
            return ()
        addresses = await resolve(host, port)
        for address in addresses:
            allow.check(host, port, address)
    except TargetRefused as error:
        raise SourceRefused(f"git: {error}") from None
    except OSError as error:
        raise SourceRefused(f"git: {host} cannot be resolved: {error}") from None
    if not addresses:
        raise SourceRefused(f"git: {host} has no address")
    first = addresses[0]
    return (f"http.curloptResolve={host}:{port}:{f'[{first}]' if ':' in first else first}",)


@dataclass(frozen=True, slots=True)
class _Repository:
    """One fetch into a directory of its own. Everything here blocks."""

    executable: str
    pin: Sequence[str]
    timeout_s: float
    monotonic: Callable[[], float]

    def read(self, url: str, ref: str, folder: str) -> tuple[str, dict[str, bytes]]:
        deadline = self.monotonic() + self.timeout_s
        with tempfile.TemporaryDirectory(prefix="git-", ignore_cleanup_errors=True) as name:
            root = Path(name)
            home, store = root / "home", root / "store"
            home.mkdir()
            self._git(root, deadline, "init", "--quiet", "--bare", "--template=", str(store))
            self._git(
                root, deadline, "fetch", "--quiet", "--depth=1", "--no-tags",
                "--no-write-fetch-head", "--no-recurse-submodules", url,
                f"+{ref}:refs/heads/fetched", store=store,
            )  # fmt: skip
            commit = self._git(
                root, deadline, "rev-parse", "--verify", "refs/heads/fetched^{commit}", store=store
            )
            resolved = commit.decode().strip()
            files = self._files(root, store, deadline, resolved, folder.strip("/"))
        return f"{url}@{resolved}", files

    def _files(
        self, root: Path, store: Path, deadline: float, commit: str, folder: str
    ) -> dict[str, bytes]:
        listing = self._git(
            root, deadline, "ls-tree", "-r", "-z", "--long", f"{commit}:{folder}", store=store
        )
        found, links = FileSet(), dict[str, str]()
        wanted: list[tuple[str, str]] = []
        planned = 0
        for line in listing.split(b"\0")[:-1]:
            about, _, raw = line.partition(b"\t")
            mode, _, oid, size = about.decode().split()
            name = raw.decode(errors="surrogateescape")
            if is_skipped(name):
                continue
            if mode == "160000":
                raise SourceRefused(f"{shown(name)}: submodules are not fetched")
            found.reserve(name)
            planned += int(size)
            if planned > found.room:
                raise SourceRefused(f"{shown(name)}: the source is too large")
            if mode == "120000":
                links[name] = oid
            wanted.append((name, oid))
        contents = self._contents(root, store, deadline, [oid for _, oid in wanted])
        plain = {name: contents[oid] for name, oid in wanted if name not in links}
        for name, oid in wanted:
            content = _linked(name, contents[oid], plain) if name in links else plain[name]
            found.add(name, content)
        return found.files

    def _contents(
        self, root: Path, store: Path, deadline: float, oids: Sequence[str]
    ) -> Mapping[str, bytes]:
        raw = self._git(
            root, deadline, "cat-file", "--batch", "--buffer", store=store,
            given="".join(f"{oid}\n" for oid in oids).encode(), limit=MAX_REPOSITORY_BYTES,
        )  # fmt: skip
        contents, at = {}, 0
        for oid in oids:
            line_end = raw.index(b"\n", at)
            size = int(raw[at:line_end].rpartition(b" ")[2])
            contents[oid] = raw[line_end + 1 : line_end + 1 + size]
            at = line_end + size + 2
        return contents

    def _git(
        self,
        root: Path,
        deadline: float,
        *arguments: str,
        store: Path | None = None,
        given: bytes = b"",
        limit: int = MAX_LISTING_BYTES,
    ) -> bytes:
        """Run git within what is left of the time, and of the room its directory may take."""
        options = [word for entry in (*_CONFIG, *self.pin) for word in ("-c", entry)]
        command = [self.executable, *options]
        command += [] if store is None else [f"--git-dir={store}"]
        with (
            tempfile.TemporaryFile(dir=root) as stdin,
            tempfile.TemporaryFile(dir=root) as stdout,
            tempfile.TemporaryFile(dir=root) as stderr,
        ):
            stdin.write(given)
            stdin.seek(0)
            process = subprocess.Popen(
                [*command, *arguments], stdin=stdin, stdout=stdout, stderr=stderr, cwd=root,
                env=_environment(root / "home"), start_new_session=True,
            )  # fmt: skip
            try:
                self._wait(process, root, deadline)
            finally:
                # Its helpers too: git-remote-https outlives a git that was killed.
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            if process.returncode != 0:
                stderr.seek(0)
                said = stderr.read(4096).decode(errors="replace").strip()
                raise SourceRefused(f"git {arguments[0]}: {_last_line(said)}")
            if stdout.seek(0, os.SEEK_END) > limit:
                raise SourceRefused(f"git {arguments[0]}: the repository is too large")
            stdout.seek(0)
            return stdout.read()

    def _wait(self, process: subprocess.Popen[bytes], root: Path, deadline: float) -> None:
        while True:
            ended = process.poll() is not None
            if _size(root) > MAX_REPOSITORY_BYTES:
                limit = MAX_REPOSITORY_BYTES >> 20
                raise SourceRefused(f"git: the repository is larger than {limit} MiB")
            if ended:
                return
            if self.monotonic() > deadline:
                raise SourceRefused(f"git: the repository took more than {self.timeout_s:g} s")
            with suppress(subprocess.TimeoutExpired):
                process.wait(_LOOK_S)


def _environment(home: Path) -> dict[str, str]:
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(home),
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "/bin/false",
        "GIT_ALLOW_PROTOCOL": "http:https",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_OPTIONAL_LOCKS": "0",
    }


def _linked(name: str, target: bytes, plain: Mapping[str, bytes]) -> bytes:
    path = posixpath.normpath(
        posixpath.join(posixpath.dirname(name), target.decode(errors="replace"))
    )
    if path not in plain:
        raise SourceRefused(f"{shown(name)}: links are taken only where they lead to a file beside")
    return plain[path]


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return (lines[-1] if lines else "failed without a word")[:300]


def _size(root: Path) -> int:
    """Bytes on disk below a directory; what vanishes while it is counted counts for nothing."""
    total = 0
    for folder, _, names in os.walk(root):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
    return total
