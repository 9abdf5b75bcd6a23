"""Registration files of agents, as the commands take them."""

from __future__ import annotations

from pathlib import Path

from schemas.agent_document import AgentDocument
from schemas.agent_loader import parse_agent
from services.cli.errors import CliError

_MAX_FILE_BYTES = 4 * 1024 * 1024


def read_agent(path: Path) -> AgentDocument:
    """The document in a file.

    Raises:
        InvalidDocument: with every problem found.
        CliError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
        text = data.decode("utf-8")
    except OSError as error:
        raise CliError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise CliError(f"{path} is not UTF-8 text: byte {error.start}") from None
    if len(data) > _MAX_FILE_BYTES:
        raise CliError(f"{path} is larger than {_MAX_FILE_BYTES} bytes")
    return parse_agent(text, str(path))
