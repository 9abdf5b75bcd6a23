"""Text files line by line, decoded, however large they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO

_MAX_LINE_BYTES = 4 * 1024 * 1024


class Unreadable(Exception):
    """The file cannot be read on from here."""


class Lines(Iterator[str]):
    """The physical lines of a file, decoded, with their line ends; bounded in length."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._ready: list[str] = []
        self.number = 0
        self.offset = 0

    def __next__(self) -> str:
        if not self._ready:
            self._ready = self._more()
        self.number += 1
        return self._ready.pop()

    def _more(self) -> list[str]:
        data = self._file.readline(_MAX_LINE_BYTES + 1)
        if not data:
            raise StopIteration
        if len(data) > _MAX_LINE_BYTES:
            raise Unreadable(f"expected lines of at most {_MAX_LINE_BYTES} bytes, found a longer")
        start = 3 if self.offset == 0 and data.startswith(b"\xef\xbb\xbf") else 0
        try:
            text = data[start:].decode("utf-8")
        except UnicodeDecodeError as error:
            at = self.offset + start + error.start
            found = data[start + error.start]
            is_utf16 = self.offset == 0 and data[:2] in (b"\xff\xfe", b"\xfe\xff")
            hint = "it looks like UTF-16; " if is_utf16 else ""
            raise Unreadable(
                f"expected UTF-8, found the byte 0x{found:02x} at byte offset {at}: {hint}save the "
                f"file as UTF-8"
            ) from None
        self.offset += len(data)
        # A lone carriage return ends a line, too. The last line comes first, for `pop`.
        return [part for part in re.split(r"(?<=\r)(?!\n)", text) if part][::-1] or [""]
