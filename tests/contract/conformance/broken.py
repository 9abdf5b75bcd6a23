"""An agent for every way in which one can break the contract.

Each differs from `Good` in one thing, which is the mistake a port would make.
"""

from __future__ import annotations

from types import ModuleType

from tests.contract.conformance import broken_calls, broken_turns
from tests.contract.conformance.conforming import Good


def _agents(module: ModuleType) -> list[type[Good]]:
    found = (value for value in vars(module).values() if isinstance(value, type))
    return [cls for cls in found if issubclass(cls, Good) and cls.__module__ == module.__name__]


BROKEN = (*_agents(broken_turns), *_agents(broken_calls))
