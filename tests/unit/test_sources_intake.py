"""Taking in source: what is accepted is canonical, and everything hostile is refused by name."""

from __future__ import annotations

import asyncio
import base64
import io
import os
import random
import stat
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.agent_document import CodeDocument
from services.runtime.sources import Archive, SourceRefused, intake
from services.runtime.sources import archive as archive_module
from services.runtime.sources import files as files_module
from services.runtime.sources import zips as zips_module
from services.runtime.sources.archive import PART_BYTES, content_hash, pack
from services.runtime.sources.entrypoint import check_entrypoint
from services.runtime.sources.zips import read_zip

RUN = "def run(task_input, *, proxy_url, run_token):\n    return {}\n"


def take(base: Path | None = None, **code: Any) -> Archive:
    return asyncio.run(intake(CodeDocument(**code), base))


def refusal(base: Path | None = None, **code: Any) -> str:
    with pytest.raises(SourceRefused) as caught:
        take(base, **code)
    return str(caught.value)


def zipped(*entries: tuple[Any, bytes | str], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip of entries, each named by a string or a whole ZipInfo."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return buffer.getvalue()


def entry(name: str, mode: int = 0o100644, **fields: Any) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system = 3
    info.external_attr = mode << 16
    for field, value in fields.items():
        setattr(info, field, value)
    return info


def zip_refusal(data: bytes) -> str:
    message = refusal(zip=base64.b64encode(data).decode())
    with pytest.raises(SourceRefused):
        read_zip(data)
    return message


@pytest.mark.req("R20")
def test_the_same_files_are_the_same_archive_wherever_they_come_from(tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent/main.py").write_text(RUN)
    os.utime(tmp_path / "agent/main.py", (1, 1))
    (tmp_path / "agent/main.py").chmod(0o700)
    (tmp_path / "main.py").write_text(RUN)
    data = zipped(("main.py", RUN))
    (tmp_path / "agent.zip").write_bytes(data)
    taken = [
        take(paste=RUN),
        take(zip=base64.b64encode(data).decode()),
        take(zip=base64.encodebytes(zipped(("repo-main/main.py", RUN))).decode()),
        take(tmp_path, path="agent"),
        take(tmp_path, path="main.py"),
        take(tmp_path, path="agent.zip"),
    ]
    assert len({one.source_hash for one in taken}) == 1
    assert len({one.data for one in taken}) == 1
    assert {one.files for one in taken} == {1}
    assert [one.origin for one in taken] == ["paste", "zip", "zip", "paste", "paste", "zip"]
    with zipfile.ZipFile(io.BytesIO(taken[0].data)) as archive:
        (info,) = archive.infolist()
        assert info.date_time == (1980, 1, 1, 0, 0, 0)
        assert stat.S_IMODE(info.external_attr >> 16) == 0o644


@pytest.mark.req("R20")
@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,6}(/[a-z]{1,6}){0,2}\.(py|txt)", fullmatch=True),
        st.binary(max_size=2000),
        min_size=1,
        max_size=8,
    ),
    st.randoms(use_true_random=False),
)
def test_packing_keeps_every_file_and_forgets_their_order(
    files: dict[str, bytes], order: random.Random
) -> None:
    names = sorted(files)
    order.shuffle(names)
    packed = pack({name: files[name] for name in names}, "zip")
    assert read_zip(packed.data) == files
    assert packed.data == pack(files, "zip").data
    assert packed.source_hash == content_hash(files)
    changed = {**files, names[0]: files[names[0]] + b"!"}
    assert content_hash(changed) != packed.source_hash


@pytest.mark.req("R20")
def test_a_hash_tells_names_from_contents() -> None:
    assert content_hash({"a": b"bc"}) != content_hash({"ab": b"c"})
    assert content_hash({"a": b"", "b": b""}) != content_hash({"a": b"b"})


@pytest.mark.req("R20")
def test_a_large_source_travels_in_parts() -> None:
    noise = random.Random(1).randbytes(3 * PART_BYTES)
    packed = pack({"main.py": RUN.encode(), "noise.bin": noise}, "zip")
    parts = packed.parts()
    assert len(parts) == packed.code("main:run").parts == 4
    assert all(len(part.data) <= PART_BYTES for part in parts)
    assert b"".join(part.data for part in parts) == packed.data
    assert [part.part for part in parts] == [0, 1, 2, 3]
    assert {part.parts for part in parts} == {4}


@pytest.mark.req("R20")
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("../main.py", "lead outside"),
        ("a/../../main.py", "lead outside"),
        ("a/..", "lead outside"),
        ("/etc/passwd", "absolute"),
        ("C:/main.py", "absolute"),
        ("c:main.py", "absolute"),
        ("a\\..\\main.py", "backslashes"),
        ("a//main.py", "empty path segments"),
        ("./main.py", "empty path segments"),
        ("a/./main.py", "empty path segments"),
        ("a\nb.py", "control characters"),
        ("a\x7fb.py", "control characters"),
        ("a" * 300 + ".py", "at most 200 bytes"),
        ("é" * 150 + ".py", "at most 200 bytes"),
        ("a/" * 600 + "main.py", "1 to 1024"),
    ],
)
def test_names_that_are_no_plain_paths_are_refused_by_name(name: str, says: str) -> None:
    message = zip_refusal(zipped(("main.py", RUN), (entry(name), "x")))
    assert says in message
    assert repr(name)[1:20] in message


@pytest.mark.req("R20")
def test_a_name_that_goes_on_after_a_nul_is_refused_as_a_whole() -> None:
    data = zipped(("main.py", RUN), (entry("okay.py.zzz"), "x"))
    message = zip_refusal(data.replace(b"okay.py.zzz", b"okay.py\x00zzz"))
    assert "control characters" in message


@pytest.mark.req("R20")
@pytest.mark.parametrize(
    ("made", "says"),
    [
        (entry("link.py", 0o120777), "'link.py': links are refused"),
        (entry("dev", 0o060666), "'dev': only plain files"),
        (entry("dev", 0o020666), "'dev': only plain files"),
        (entry("pipe", 0o010666), "'pipe': only plain files"),
        (entry("socket", 0o140666), "'socket': only plain files"),
        (entry("link/", 0o120777), "'link/': links are refused"),
        (entry("main.PY"), "'main.PY': collides with 'main.py'"),
        (entry("MAIN.py/a.txt"), "'MAIN.py/a.txt': its folder 'main.py' is a file"),
        (entry("main.py/a.txt"), "'main.py/a.txt': its folder 'main.py' is a file"),
        (entry("x.bin", compress_type=zipfile.ZIP_BZIP2), "'x.bin': expected deflate"),
        (entry("x.bin", compress_type=zipfile.ZIP_LZMA), "'x.bin': expected deflate"),
    ],
)
def test_entries_that_are_no_plain_files_are_refused_by_name(
    made: zipfile.ZipInfo, says: str
) -> None:
    assert says in zip_refusal(zipped(("main.py", RUN), (made, "/etc/passwd")))


@pytest.mark.req("R20")
def test_folders_that_differ_in_case_are_refused() -> None:
    message = zip_refusal(zipped(("main.py", RUN), ("data/a", "1"), ("Data/b", "2")))
    assert "'Data/b': collides with 'data'" in message


@pytest.mark.req("R20")
def test_two_files_of_one_name_are_refused() -> None:
    with pytest.warns(UserWarning, match="Duplicate name"):
        data = zipped(("main.py", RUN), ("main.py", "import os"))
    assert "'main.py': there are two files of this name" in zip_refusal(data)


@pytest.mark.req("R20")
def test_encrypted_entries_are_refused() -> None:
    data = bytearray(zipped(("main.py", RUN), ("secret.py", "x")))
    at = data.index(b"PK\x01\x02", data.index(b"PK\x01\x02") + 1)
    data[at + 8] |= 1
    assert "'secret.py': encrypted entries are refused" in zip_refusal(bytes(data))


@pytest.mark.req("R20")
def test_content_that_is_not_what_its_checksum_says_is_refused() -> None:
    data = bytearray(zipped(("main.py", RUN), ("x.bin", b"abcdefgh"), method=zipfile.ZIP_STORED))
    data[data.index(b"abcdefgh")] ^= 1
    assert "'x.bin': cannot be unpacked: Bad CRC-32" in zip_refusal(bytes(data))


@pytest.mark.req("R20")
@pytest.mark.parametrize("claimed", [10, 10_000_000])
def test_headers_that_lie_about_sizes_are_refused(claimed: int) -> None:
    data = bytearray(zipped(("main.py", RUN), ("x.bin", b"y" * 5000)))
    at = data.index(b"PK\x01\x02", data.index(b"PK\x01\x02") + 1)
    struct.pack_into("<I", data, at + 24, claimed)
    assert "'x.bin'" in zip_refusal(bytes(data))


@pytest.mark.req("R20")
def test_a_bomb_is_refused_before_it_is_whole() -> None:
    bomb = zipped(("main.py", RUN), ("bomb.bin", bytes(40 << 20)))
    assert len(bomb) < 100_000
    assert "'bomb.bin': unpacks to over 200 times itself" in zip_refusal(bomb)


@pytest.mark.req("R20")
def test_many_small_bombs_are_refused_by_their_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "MAX_UNPACKED_BYTES", 5_000_000)
    data = zipped(("main.py", RUN), *((f"{n}.bin", bytes(1 << 20)) for n in range(8)))
    assert "'4.bin': the source is larger than" in zip_refusal(data)


@pytest.mark.req("R20")
def test_entries_that_share_their_bytes_count_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Overlapping entries make a small archive large without any of them being strange."""
    monkeypatch.setattr(files_module, "MAX_UNPACKED_BYTES", 3_000_000)
    data = bytearray(zipped(*((f"{n}.bin", bytes(1 << 20)) for n in range(5))))
    first = data.index(b"PK\x01\x02")
    offset = struct.unpack_from("<I", data, first + 42)[0]
    at = first
    while (at := data.find(b"PK\x01\x02", at + 4)) >= 0:
        struct.pack_into("<I", data, at + 42, offset)
    with pytest.raises(SourceRefused, match=r"'1\.bin'|'2\.bin'"):
        read_zip(bytes(data))


@pytest.mark.req("R20")
def test_a_zip_in_a_zip_stays_a_file() -> None:
    inner = zipped(("bomb", bytes(1000)))
    files = read_zip(zipped(("main.py", RUN), ("inner.zip", inner)))
    assert files["inner.zip"] == inner


@pytest.mark.req("R20")
@pytest.mark.parametrize(
    "data",
    [b"", b"PK", b"not a zip at all", zipped(("main.py", RUN))[:-10], b"PK\x05\x06" + b"\xff" * 18],
)
def test_what_is_no_zip_is_refused(data: bytes) -> None:
    assert "not a readable zip" in zip_refusal(data)


@pytest.mark.req("R20")
@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_damaged_zip_is_refused_or_read_and_nothing_else(data: st.DataObject) -> None:
    whole = bytearray(zipped(("main.py", RUN * 20), ("a/b.txt", b"text"), ("c.bin", bytes(3000))))
    for _ in range(data.draw(st.integers(1, 6))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        files = read_zip(bytes(whole))
    except SourceRefused:
        return
    for name in files:
        files_module.check_name(name)


@pytest.mark.req("R20")
def test_too_many_files_and_too_many_bytes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "MAX_FILES", 3)
    assert "more than 3 files" in zip_refusal(
        zipped(("main.py", RUN), *((f"{n}.txt", "") for n in range(3)))
    )
    monkeypatch.setattr(zips_module, "MAX_ARCHIVE_BYTES", 1000)
    assert "larger than" in zip_refusal(zipped(("x", random.Random(1).randbytes(2000))))
    monkeypatch.setattr(archive_module, "MAX_ARCHIVE_BYTES", 1000)
    with pytest.raises(SourceRefused, match=r"its largest file is big\.bin with 2000 bytes"):
        pack({"big.bin": random.Random(1).randbytes(2000), "main.py": b""}, "zip")
    with pytest.raises(SourceRefused, match="no files"):
        pack({}, "zip")


@pytest.mark.req("R20")
def test_a_folder_without_what_never_belongs_to_a_source(tmp_path: Path) -> None:
    for name in (".git/config", "__pycache__/main.pyc", ".venv/bin/python", "pkg/__pycache__/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("never")
    (tmp_path / ".venv/bin/link").symlink_to("/usr/bin/python3")
    (tmp_path / "main.py").write_text(RUN)
    (tmp_path / "pkg/words.txt").write_text("hey")
    (tmp_path / "pkg/alias.txt").symlink_to("words.txt")
    assert read_zip(take(tmp_path.parent, path=tmp_path.name).data) == {
        "main.py": RUN.encode(), "pkg/words.txt": b"hey", "pkg/alias.txt": b"hey",
    }  # fmt: skip


@pytest.mark.req("R20")
def test_a_folder_that_leads_outside_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "agent"
    root.mkdir()
    (root / "main.py").write_text(RUN)
    (tmp_path / "secret.txt").write_text("secret")
    (root / "steal.txt").symlink_to("../secret.txt")
    assert "'steal.txt': links that lead outside" in refusal(tmp_path, path="agent")
    (root / "steal.txt").unlink()
    (root / "sub").symlink_to("/etc")
    assert "'sub': links to folders" in refusal(tmp_path, path="agent")
    (root / "sub").unlink()
    os.mkfifo(root / "pipe")
    assert "'pipe': only plain files" in refusal(tmp_path, path="agent")


@pytest.mark.req("R20")
def test_a_path_is_read_only_where_that_is_allowed(tmp_path: Path) -> None:
    assert "not read here" in refusal(None, path="/etc/passwd")
    assert "expected a folder" in refusal(tmp_path, path="nothing")
    assert "No such file" in refusal(tmp_path, path="nothing.py")


@pytest.mark.req("R20")
@pytest.mark.parametrize(
    ("code", "says"),
    [
        ({}, "exactly one of"),
        ({"paste": RUN, "path": "x"}, "found paste, path"),
        ({"paste": "def walk(): ..."}, "main.py defines no run"),
        ({"paste": "def run(:"}, "main.py, line 1"),
        ({"paste": "\x00"}, "main.py"),
        ({"paste": "(" * 5000}, "main.py"),
        ({"paste": RUN, "entrypoint": "a.b:run"}, "one module"),
        ({"zip": "not base64!"}, "base64"),
        ({"zip": base64.b64encode(zipped(("x.py", RUN))).decode()}, "no main.py; it has x.py"),
    ],
)
def test_what_cannot_be_run_is_refused_with_its_reason(code: dict[str, Any], says: str) -> None:
    assert says in refusal(**code)


@pytest.mark.req("R20")
@pytest.mark.parametrize(
    "text",
    [
        "async def run(t): ...",
        "class run: ...",
        "from helper import run",
        "from helper import go as run",
        "from helper import *",
        "run = lambda t: t",
        "run, other = 1, 2",
        "run: object = print",
        "try:\n    from a import run\nexcept ImportError:\n    def run(t): ...",
        "if True:\n    def run(t): ...",
        "with open('x') as f:\n    run = 1",
        "if (run := print): pass",
        "def __getattr__(name): ...",
    ],
)
def test_every_way_to_define_the_entrypoint_is_found(text: str) -> None:
    check_entrypoint({"main.py": text.encode()}, "main:run")
    check_entrypoint({"pkg/main/__init__.py": text.encode()}, "pkg.main:run")


@pytest.mark.req("R20")
def test_a_name_inside_of_something_else_is_no_entrypoint() -> None:
    for text in ("def f():\n    run = 1", "class C:\n    def run(self): ...", "run()", "x.run = 1"):
        with pytest.raises(SourceRefused, match="defines no run"):
            check_entrypoint({"main.py": text.encode()}, "main:run")


@pytest.mark.req("R18", "R20")
def test_what_a_registration_says_of_a_source() -> None:
    code = take(paste=RUN, entrypoint="agent:run").code("agent:run")
    assert (code.entrypoint, code.origin, code.files, code.parts) == ("agent:run", "paste", 1, 1)
    assert len(code.source_hash) == 32
    assert bytes.fromhex(code.source_hash)
