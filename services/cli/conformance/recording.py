"""What the kit's proxy is told to do for a turn, and what it notes of the requests that come."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Barrier:
    """Holds the first call of each of several runs until all have made one, within a bound."""

    parties: int
    timeout_s: float
    arrived: set[str] = field(default_factory=set)
    full: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait(self, run_id: str) -> None:
        """Returns when all have arrived, or after the bound."""
        self.arrived.add(run_id)
        if len(self.arrived) >= self.parties:
            self.full.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.timeout_s):
                await self.full.wait()
        self.full.set()  # whoever comes later is not held


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How a run's calls are answered."""

    shape: str = "object"
    """object; encoded (an object as JSON text, as it was once sent); text; array; error."""
    refuse_first: str = ""
    """A code of the error table for the first call."""
    retry_after_s: int | None = None
    slow_first_s: float = 0.0
    barrier: Barrier | None = None


@dataclass(slots=True)
class Seen:
    """One request that arrived. `code` is its refusal's; empty when it was answered 200."""

    at: float
    method: str
    path: str
    query: str
    kind: str
    """tool, trace or other."""
    tool: str
    actor: str | None
    headers: tuple[tuple[str, str], ...]
    tokens: frozenset[str]
    run_id: str | None
    """The run whose path it used."""
    body: bytes = b""
    arguments: dict[str, Any] | None = None
    code: str = ""
    details: dict[str, Any] = field(default_factory=dict)
    scripted: bool = False
    """The refusal was the kit's doing, not the agent's fault."""
    slowed: bool = False
    replied: bool = False
    """The agent waited for the reply."""
    response: Any = None


@dataclass(slots=True)
class Run:
    """One turn's proxy: where it is, its token, and what came in."""

    run_id: str
    token: str = field(repr=False)
    proxy_url: str
    reference: str
    behaviour: Behaviour
    seen: list[Seen] = field(default_factory=list)

    @property
    def calls(self) -> list[Seen]:
        """Tool calls on its path, refused ones included."""
        return [one for one in self.seen if one.kind == "tool"]

    @property
    def answered(self) -> list[Seen]:
        """Tool calls that were answered 200."""
        return [one for one in self.calls if not one.code]
