"""Text files that people hand to commands, read within bounds."""

from __future__ import annotations

from pathlib import Path

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
