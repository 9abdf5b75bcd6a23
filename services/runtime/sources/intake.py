"""One way in for every place a source can come from."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from schemas.agent_document import CodeDocument, GitDocument
from services.runtime.sources.archive import MAX_ARCHIVE_BYTES, Archive, pack
from services.runtime.sources.entrypoint import check_entrypoint
from services.runtime.sources.files import FileSet, SourceRefused, without_top_folder
from services.runtime.sources.folders import read_path
from services.runtime.sources.git import fetch_git
from services.runtime.sources.zips import read_zip

FetchGit = Callable[[GitDocument], Awaitable[tuple[str, dict[str, bytes]]]]
_PLACES = ("paste", "zip", "path", "git")


async def intake(
    code: CodeDocument, base: Path | None = None, *, git: FetchGit = fetch_git
) -> Archive:
    """The archive of what a document names, its entrypoint found in it.

    Args:
        base: The folder that `path` is relative to; None refuses a path, for whoever takes
            documents from others and must not read its own files for them.
        git: How a repository is fetched; `fetch_git` with what may be reached filled in.

    Raises:
        SourceRefused: naming the entry, or what else is wrong.
    """
    given = [place for place in _PLACES if getattr(code, place) is not None]
    if len(given) != 1:
        found = ", ".join(given) or "none"
        raise SourceRefused(f"expected exactly one of {', '.join(_PLACES)}; found {found}")
    if code.git is not None:
        reference, files = await git(code.git)
        return await asyncio.to_thread(_packed, files, "git", reference, code.entrypoint)
    return await asyncio.to_thread(_taken_in, code, base)


def _taken_in(code: CodeDocument, base: Path | None) -> Archive:
    if code.paste is not None:
        return _packed(_pasted(code.paste, code.entrypoint), "paste", "", code.entrypoint)
    if code.zip is not None:
        files = read_zip(_decoded(code.zip))
        return _packed(files, "zip", "", code.entrypoint)
    assert code.path is not None
    if base is None:
        raise SourceRefused("path: files of this machine are not read here; paste or zip them")
    origin, files = read_path(base / code.path)
    return _packed(files, origin, "", code.entrypoint)


def _packed(files: Mapping[str, bytes], origin: str, reference: str, entrypoint: str) -> Archive:
    stem = entrypoint.partition(":")[0].partition(".")[0]
    if f"{stem}.py" not in files and not any(name.startswith(f"{stem}/") for name in files):
        files = without_top_folder(files) or files
    check_entrypoint(files, entrypoint)
    return pack(files, origin, reference)


def _pasted(text: str, entrypoint: str) -> dict[str, bytes]:
    """Pasted text is the module that the entrypoint names: `main.py`, unless it says otherwise."""
    module = entrypoint.partition(":")[0]
    if "." in module:
        raise SourceRefused(f"entrypoint {entrypoint}: pasted source is one module, not a package")
    try:
        content = text.encode()
    except UnicodeEncodeError:
        raise SourceRefused("paste: not text that can be written as UTF-8") from None
    found = FileSet()
    found.reserve(f"{module}.py")
    found.add(f"{module}.py", content)
    return found.files


def _decoded(text: str) -> bytes:
    if len(text) > MAX_ARCHIVE_BYTES * 2:
        raise SourceRefused(f"zip: the archive is larger than {MAX_ARCHIVE_BYTES >> 20} MiB")
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise SourceRefused("zip: expected a zip archive in base64") from None
