"""What worlds and their tools raise."""

from __future__ import annotations

from typing import Any


class WorldError(Exception):
    """A world is not defined, loaded, seeded or used as it must be: its author's mistake."""


class ToolError(Exception):
    """Raised in a tool: it answers with an error, and the state stays as it was.

    The agent gets `{"error": {"code": code, "message": message, **details}}`.
    """

    def __init__(self, code: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details


class ArgumentsRefused(Exception):
    """The arguments do not fit the function's signature; `path` and `rule` say where and how."""

    def __init__(self, path: str, rule: str, message: str) -> None:
        super().__init__(message)
        self.path, self.rule, self.message = path, rule, message
