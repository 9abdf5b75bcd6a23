"""Source from git repositories over HTTP: what is fetched, and what a repository cannot do."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from schemas.agent_document import CodeDocument, GitDocument
from services.runtime.addresses import AllowList
from services.runtime.sources import Archive, SourceRefused, intake
from services.runtime.sources import git as git_module
from services.runtime.sources.git import fetch_git
from services.runtime.sources.zips import read_zip
from tests.support.git_server import Repository, git_server, require_git
from tests.support.http_server import raw_server

RUN = "def run(t, *, proxy_url, run_token):\n    return {}\n"
LOCAL = AllowList(["127.0.0.1", "git.example"])


@pytest.fixture(autouse=True)
def _lane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Besides the lane: nothing is left behind, no process and no file."""
    require_git()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    yield
    assert list(scratch.iterdir()) == []
    assert not [p for p in psutil.Process().children(recursive=True) if "git" in p.name()]


async def _local(host: str, port: int) -> Sequence[str]:
    return ["127.0.0.1"]


def take(url: str, *, entrypoint: str = "main:run", **git: str) -> Archive:
    async def fetch(document: GitDocument) -> tuple[str, dict[str, bytes]]:
        return await fetch_git(document, allow=LOCAL, resolve=_local, timeout_s=20)

    code = CodeDocument(entrypoint=entrypoint, git=GitDocument(url=url, **git))
    return asyncio.run(intake(code, git=fetch))


def refusal(url: str, **git: str) -> str:
    with pytest.raises(SourceRefused) as caught:
        take(url, **git)
    return str(caught.value)


@pytest.mark.req("R20")
def test_branch_tag_commit_and_folder(tmp_path: Path) -> None:
    repository = Repository(tmp_path)
    first = repository.commit({"main.py": RUN, "README.md": "one"})
    repository.git("tag", "v1")
    second = repository.commit({"README.md": "two", "agents/shop/main.py": RUN + "# shop\n"})
    with git_server(repository.bare.parent) as server:
        url = f"{server.url}/agent.git"
        newest = take(url)
        assert newest.origin == "git"
        assert newest.origin_ref == f"{url}@{second}"
        assert read_zip(newest.data)["README.md"] == b"two"
        assert take(url, ref="main").source_hash == newest.source_hash
        for ref in ("v1", first):
            older = take(url, ref=ref)
            assert older.origin_ref == f"{url}@{first}"
            assert read_zip(older.data) == {"main.py": RUN.encode(), "README.md": b"one"}
        folder = take(url, folder="agents/shop")
        assert list(read_zip(folder.data)) == ["main.py"]
        by_name = take(url.replace("127.0.0.1", "git.example"))
        assert by_name.source_hash == newest.source_hash


@pytest.mark.req("R20")
def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    repository = Repository(tmp_path)
    repository.commit({"main.py": RUN})
    with git_server(repository.bare.parent) as server:
        url = f"{server.url}/agent.git"
        assert "git fetch" in refusal(url, ref="no-such-branch")
        assert "git fetch" in refusal(f"{server.url}/other.git")
        assert "git ls-tree" in refusal(url, folder="nowhere")
        assert "git ls-tree" in refusal(url, folder="../..")


@pytest.mark.req("R20")
def test_nothing_of_a_repository_runs_or_leads_outside(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    repository = Repository(tmp_path / "r")
    files = {
        "main.py": RUN,
        ".gitattributes": "* filter=evil export-subst\n",
        ".gitconfig": f'[filter "evil"]\n\tsmudge = touch {marker}\n',
        ".lfsconfig": f"[lfs]\n\turl = file://{marker}\n",
        "words.txt": "$Format:%H$",
    }
    repository.commit(files, {"alias.txt": "words.txt"})
    with git_server(repository.bare.parent) as server:
        taken = read_zip(take(f"{server.url}/agent.git").data)
        assert taken["words.txt"] == taken["alias.txt"] == b"$Format:%H$"
        repository.commit({}, {"steal.txt": "../../../../etc/passwd"})
        assert "'steal.txt': links are taken only" in refusal(f"{server.url}/agent.git")
        (repository.work / "steal.txt").unlink()
        (repository.work / "steal.txt").symlink_to("/etc/passwd")
        repository.commit({})
        assert "'steal.txt': links are taken only" in refusal(f"{server.url}/agent.git")
    assert not marker.exists()


@pytest.mark.req("R20")
def test_submodules_are_refused_by_name(tmp_path: Path) -> None:
    repository = Repository(tmp_path)
    commit = repository.commit({"main.py": RUN})
    repository.git("update-index", "--add", "--cacheinfo", f"160000,{commit},vendored")
    repository.git("commit", "--quiet", "--message", "submodule")
    repository.git("push", "--quiet", str(repository.bare), "HEAD:main")
    with git_server(repository.bare.parent) as server:
        assert "'vendored': submodules are not fetched" in refusal(f"{server.url}/agent.git")


@pytest.mark.req("R20")
def test_addresses_that_are_ours_are_not_reached(tmp_path: Path) -> None:
    asked: list[bytes] = []
    with raw_server(lambda connection: asked.append(connection.recv(100))) as url:
        port = url.rpartition(":")[2]

        def refused(place: str, *, says: str, resolve: Any = None) -> None:
            async def go() -> None:
                document = GitDocument(url=place)
                options = {} if resolve is None else {"resolve": resolve}
                await fetch_git(document, timeout_s=10, **options)

            with pytest.raises(SourceRefused, match=says):
                asyncio.run(go())

        refused(f"http://127.0.0.1:{port}/a.git", says="not public")
        refused(f"http://[::1]:{port}/a.git", says="not public")
        refused("http://169.254.169.254/latest", says="not public")
        refused(f"http://2130706433:{port}/a.git", says="not a plainly written address")
        refused(f"http://git.example:{port}/a.git", says="not public", resolve=_local)

        async def mixed(host: str, port: int) -> Sequence[str]:
            return ["93.184.216.34", "10.0.0.1"]

        async def nothing(host: str, port: int) -> Sequence[str]:
            return []

        async def unknown(host: str, port: int) -> Sequence[str]:
            raise socket.gaierror("unknown")

        refused("https://git.example/a.git", says="not public", resolve=mixed)
        refused("https://git.example/a.git", says="no address", resolve=nothing)
        refused("https://git.example/a.git", says="cannot be resolved", resolve=unknown)
    assert asked == []


@pytest.mark.req("R20")
def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    repository = Repository(tmp_path)
    repository.commit({"main.py": RUN})
    with git_server(repository.bare.parent) as target, git_server(repository.bare.parent) as server:
        server.redirect_to = target.url
        assert "git fetch" in refusal(f"{server.url}/agent.git")
        assert server.asked
        assert target.asked == []


@pytest.mark.req("R20")
@pytest.mark.parametrize(
    "url", ["file:///etc", "ssh://host/a", "ext::sh -c x", "git@host:a", "/tmp/a", "git://host/a"]
)
def test_other_protocols_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="expected a URL"):
        GitDocument(url=url)
    document = GitDocument.model_construct(url=url, ref="HEAD", folder="")
    with pytest.raises(SourceRefused):
        asyncio.run(fetch_git(document, allow=AllowList(["0.0.0.0/0"]), resolve=_local))


@pytest.mark.req("R20")
def test_a_server_that_never_answers_or_never_ends_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.recv(65536)

    async def fetch(url: str, timeout_s: float) -> None:
        document = GitDocument(url=url + "/a.git")
        await fetch_git(document, allow=LOCAL, resolve=_local, timeout_s=timeout_s)

    with (
        raw_server(silent) as url,
        pytest.raises(SourceRefused, match="more than 1 s"),
    ):
        asyncio.run(fetch(url, 1))
    repository = Repository(tmp_path / "r")
    repository.commit({"main.py": RUN, "noise.bin": os.urandom(3 << 20)})
    monkeypatch.setattr(git_module, "MAX_REPOSITORY_BYTES", 1 << 20)
    with git_server(repository.bare.parent) as server:
        assert "the repository is larger than 1 MiB" in refusal(f"{server.url}/agent.git")


@pytest.mark.req("R18", "R20")
def test_no_credential_is_taken_from_here_or_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What this process has in its environment, home and configuration is not git's to use."""
    marker = tmp_path / "asked"
    helper = tmp_path / "helper"
    helper.write_text(f"#!/bin/sh\ntouch {marker}\necho password=secret\n")
    helper.chmod(0o755)
    config = tmp_path / "gitconfig"
    config.write_text(f"[credential]\n\thelper = {helper}\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_ASKPASS", str(helper))
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    seen: list[bytes] = []

    def locked(connection: socket.socket) -> None:
        seen.append(connection.recv(65536))
        connection.sendall(
            b'HTTP/1.1 401 No\r\nWWW-Authenticate: Basic realm="x"\r\nContent-Length: 0\r\n\r\n'
        )

    with raw_server(locked) as url:
        assert "git fetch" in refusal(f"{url}/a.git")
    assert seen
    assert all(b"authorization" not in request.lower() for request in seen)
    assert not marker.exists()
    document = GitDocument.model_construct(
        url="http://user:secret@127.0.0.1:9/a.git?token=secret", ref="HEAD", folder=""
    )
    with pytest.raises(SourceRefused) as caught:
        asyncio.run(fetch_git(document, allow=LOCAL, resolve=_local))
    assert "secret" not in str(caught.value)


@pytest.mark.req("R20")
def test_without_git_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SourceRefused, match="needs git"):
        asyncio.run(fetch_git(GitDocument(url="https://git.example/a.git")))
