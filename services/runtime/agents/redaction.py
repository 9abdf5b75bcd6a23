"""Secrets that an agent was given, taken out of what it gives back."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property
from typing import Any
from urllib.parse import quote as percent_encoded

import orjson

from schemas.agent_response import ParsedResponse

REDACTED = "[redacted]"
MAX_QUOTED_BYTES = 300
_LOOKED_AT_BYTES = 64 * 1024
_JSON_LEVELS = 3
"""JSON inside JSON inside JSON: arguments are texts, and so are whole bodies in them."""
_SHORTEST = 6
"""Anything shorter is no secret, and replacing it would mangle what was said."""
_SHORTEST_CREDENTIAL = 8
_TOKEN = re.compile(r"gAAAAA[A-Za-z0-9_-]+={0,2}")
"""What a run token, being a Fernet message, looks like."""


class Redactor:
    """Replaces secrets by `[redacted]`: as they are, percent-encoded, or escaped inside JSON."""

    def __init__(
        self, secrets: Iterable[str], is_token: Callable[[str], bool] = lambda _: True
    ) -> None:
        """`secrets` are header values and tokens; of `Bearer x` the `x` alone is one too.
        `is_token` says of what looks like a run token whether it is one, of any turn.
        """
        spellings: set[str] = set()
        for secret in secrets:
            _, _, credential = secret.partition(" ")
            parts = [secret] if len(secret) >= _SHORTEST else []
            parts += [credential] if len(credential) >= _SHORTEST_CREDENTIAL else []
            for part in parts:
                spellings |= {part, percent_encoded(part, safe="")}
                for _ in range(_JSON_LEVELS):
                    part = json.dumps(part)[1:-1]
                    spellings.add(part)
        self._spellings = spellings
        self._is_token = is_token

    @cached_property
    def _secrets(self) -> re.Pattern[str]:
        # Compiled when one was found: most answers have none, and each turn has a token of its own.
        # The longest first, so that no part of a secret is left.
        longest_first = sorted(self._spellings, key=lambda one: (-len(one), one))
        return re.compile("|".join(map(re.escape, longest_first)))

    def text(self, text: str) -> str:
        """The text without secrets."""
        if "gAAAAA" in text:
            text = _TOKEN.sub(lambda m: REDACTED if self._is_token(m[0]) else m[0], text)
        if any(spelling in text for spelling in self._spellings):
            text = self._secrets.sub(REDACTED, text)
        return text

    def value(self, value: Any) -> Any:
        """A JSON value without secrets, in keys neither. Nested at most a hundred levels."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(key): self.value(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.value(item) for item in value]
        return value

    def response(self, parsed: ParsedResponse) -> ParsedResponse:
        """An answer without secrets; a soft warning names the parts that had some."""
        found = []
        final = self.text(parsed.final_response)
        if final != parsed.final_response:
            found.append("final_response")
        messages, metadata, usage = parsed.messages, parsed.metadata, parsed.usage
        if messages is not None and self._occurs(messages):
            messages = self.value(messages)
            found.append("messages")
        if metadata is not None and self._occurs(metadata):
            metadata = self.value(metadata)
            found.append("metadata")
        if usage is not None:
            usage = replace(usage, model=self.text(usage.model))
        warnings = [self.text(warning) for warning in parsed.soft_warnings]
        if found:
            warnings.append(f"a secret was replaced by {REDACTED} in {', '.join(found)}")
        return replace(
            parsed,
            final_response=final,
            messages=messages,
            metadata=metadata,
            usage=usage,
            soft_warnings=tuple(warnings),
        )

    def quote(self, body: bytes) -> str:
        """The beginning of a body for an error's detail: printable, redacted, at most 300 bytes."""
        text = self.text(body[:_LOOKED_AT_BYTES].decode(errors="replace"))
        printable = "".join(sign if sign.isprintable() else " " for sign in text)
        return printable.strip().encode()[:MAX_QUOTED_BYTES].decode(errors="ignore")

    def _occurs(self, value: Any) -> bool:
        """Whether a secret may be in a JSON value, told from its text alone."""
        text = orjson.dumps(value).decode()
        return self.text(text) != text
