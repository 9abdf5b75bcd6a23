"""Everything `schemas` can raise.

WindtunnelSchemaError
├── DecodeError          a record's bytes cannot be read
│   └── UnknownSchema    framed with a fingerprint (or registry id) nobody here knows
├── EncodeError          a value does not fit its schema
└── InvalidDocument      something a person wrote is wrong; carries every problem found
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class WindtunnelSchemaError(Exception):
    """Base of all errors raised by `schemas`."""


class DecodeError(WindtunnelSchemaError):
    """The bytes of a record are not what its topic promises."""


class UnknownSchema(DecodeError):
    """The writer's schema is not among the current and recorded ones."""


class EncodeError(WindtunnelSchemaError):
    """A value cannot be written with its schema."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in a document: where it is, and what was expected there."""

    path: str
    message: str
    file: str = ""
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        place = self.file or "document"
        if self.line is not None:
            place += f":{self.line}"
            if self.column is not None:
                place += f":{self.column}"
        return f"{place}: {self.path or '(top)'}: {self.message}"


class InvalidDocument(WindtunnelSchemaError):
    """A document has one or more problems; all of them are in `problems`."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))
