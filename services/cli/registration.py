"""Registration files of agents, as the commands take them."""

from __future__ import annotations

from pathlib import Path

from schemas.agent_document import AgentDocument
from schemas.agent_loader import parse_agent
from services.cli.files import read_text

_MAX_FILE_BYTES = 4 * 1024 * 1024


def read_agent(path: Path) -> AgentDocument:
    """The document in a file.

    Raises:
        InvalidDocument: with every problem found.
        CliError: the file cannot be read.
    """
    return parse_agent(read_text(path, _MAX_FILE_BYTES), str(path))
