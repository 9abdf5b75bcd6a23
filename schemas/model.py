"""What the models of the scenario language have in common: strictness, names, patterns."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, WithJsonSchema

IDENTIFIER = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"

TOOL_NAME = r"^[A-Za-z_][A-Za-z0-9_-]{0,127}$"

POINTER = r"^(/([^~/]|~[01])*)*$"


class Model(BaseModel):
    """Frozen, and strict about unknown fields: a misspelt key is an error, not a no-op."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def _regex(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    return value


Scalar = str | int | float | bool


class Pattern(str):
    """A regular expression, searched without regard to case."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(
            lambda value: cls(_regex(value)), core_schema.str_schema(min_length=1)
        )

    def found_in(self, text: str) -> bool:
        return re.search(self, text, re.IGNORECASE) is not None


def _pointer(value: str) -> str:
    if re.fullmatch(POINTER, value):
        return value
    hint = "after ~ comes 0 or 1" if value.startswith("/") else f"write /{value}"
    raise ValueError(f"expected a JSON pointer, found {value!r}; {hint}")


Pointer = Annotated[
    str, AfterValidator(_pointer), WithJsonSchema({"type": "string", "pattern": POINTER})
]
"""A place in a JSON document, as RFC 6901 writes it."""
