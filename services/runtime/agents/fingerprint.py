"""What an agent was registered as, in one hash (V08)."""

from __future__ import annotations

import orjson

from schemas.record import to_datum
from schemas.registry import AgentRegistration
from services.runtime.ids import digest

_to_datum = to_datum(AgentRegistration)


def fingerprint(agent: AgentRegistration) -> str:
    """A hash over everything that was registered but the time."""
    datum = _to_datum(agent)
    datum.pop("registered_at_ms")
    return digest(orjson.dumps(datum, option=orjson.OPT_SORT_KEYS).decode()).hex()
