"""Text files that people hand to commands, read in bounds, and those they get, written whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from services.cli.errors import CliError


def read_text(path: Path, max_bytes: int, encoding: str = "utf-8") -> str:
    """The text of a file; `encoding` is UTF-8, or `utf-8-sig` where a byte order mark may lead.

    Raises:
        CliError: it cannot be read, is larger than `max_bytes`, or is not UTF-8.
    """
    try:
        with path.open("rb") as file:
            data = file.read(max_bytes + 1)
        if len(data) > max_bytes:
            raise CliError(f"{path} is larger than {max_bytes} bytes")
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise CliError(f"{path} is not UTF-8 text: byte {error.start}") from None
    except OSError as error:
        raise CliError(f"{path} cannot be read: {error.strerror}") from None


@contextmanager
def written_whole(path: Path) -> Iterator[TextIO]:
    """A text file to write. What stood there before stays until the block ends without an error.

    Raises:
        OSError: it cannot be written.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with part.open("w", encoding="utf-8") as file:
            yield file
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
