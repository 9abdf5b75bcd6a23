"""tau2's domains as worlds, to be named in the proxy's `worlds` as `<this module>:<attribute>`:

    services.tool_proxy.foreign.tau2:retail     the world tau2_retail
    services.tool_proxy.foreign.tau2:airline    tau2_airline
    services.tool_proxy.foreign.tau2:telecom    tau2_telecom, with tools for the user as well
    services.tool_proxy.foreign.tau2:mock       tau2_mock, a small one

A domain is loaded when its attribute is first asked for. Answers, errors among them, are tau2's: an
error is a text that starts with `Error: `. Arguments reach tau2 as they were sent.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
from pydantic import BaseModel

from services.runtime.tau2.domains import DOMAINS, INITIAL, Domain, Requestor, domain
from services.runtime.tau2.package import Tau2Missing
from services.tool_proxy.jsons import JsonObject
from services.tool_proxy.world import Context, World, WorldError, WorldTool


class _AsSent(BaseModel):
    """tau2 checks the arguments itself."""


@dataclass(frozen=True, slots=True)
class Tau2Tool(WorldTool):
    """A tool of a domain: of the agent's, or of the simulated user's."""

    domain: Domain
    requestor: Requestor

    def __call__(self, context: Context, arguments: bytes) -> Any:
        """The tool's answer. Raises ValueError when the session's state does not fit."""
        response, after = self.domain.call(
            context.state, self.name, orjson.loads(arguments), self.requestor, context.random
        )
        context.state.clear()
        context.state.update(after)
        return response


class Tau2World(World):
    """A domain as a world."""

    def __init__(self, of: Domain) -> None:
        super().__init__(f"tau2_{of.name}", INITIAL)
        self._domain = of
        requestors: tuple[Requestor, ...] = ("assistant", "user")
        for requestor in requestors:
            for text in of.tools(requestor):
                if text.name in self._tools:
                    raise WorldError(f"tau2 {of.name}: user and agent both have {text.name}")
                self._tools[text.name] = Tau2Tool(
                    name=text.name,
                    description=text.description,
                    input_schema=text.input_schema,
                    output_schema=None,
                    function=_not_called,
                    arguments=_AsSent,
                    domain=of,
                    requestor=requestor,
                )
                if requestor == "user":
                    self._of_user.append(text.name)

    def seeded(self, patch: Mapping[str, Any], now: datetime, chance: random.Random) -> JsonObject:
        """The state of a session, which must fit the domain. Raises as `World.seeded` does."""
        state = super().seeded(patch, now, chance)
        try:
            environment = self._domain.environment(state)
            return self._domain.state_of(environment)
        except ValueError as error:
            raise WorldError(f"world {self.name}: {error}") from None


def _not_called(context: Context) -> None:
    raise AssertionError("a tau2 tool is called as a whole")


_worlds: dict[str, Tau2World] = {}


def __getattr__(name: str) -> Tau2World:
    if name not in DOMAINS:
        raise AttributeError(f"there is no domain {name}; there are {', '.join(DOMAINS)}")
    if name not in _worlds:
        try:
            _worlds[name] = Tau2World(domain(name))
        except Tau2Missing as missing:
            raise AttributeError(str(missing)) from None
    return _worlds[name]
