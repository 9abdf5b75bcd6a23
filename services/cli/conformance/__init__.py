"""Does an agent's endpoint speak the runtime contract? One check for every line of it that can be
decided from outside.

    target = AgentTarget(url="http://127.0.0.1:8700/dispatch", auth_header="Authorization",
                         auth_value="Bearer ...", instruction="Where is order 4521?")
    results = await run_checks(target, on_result=print)
    sys.exit(1 if any(result.blocks for result in results) else 0)

The agent is dispatched to as the platform does it, and its tool calls are answered by a small proxy
in this process, which notes what arrives.
"""

from __future__ import annotations

from services.cli.conformance.catalogue import CATALOGUE
from services.cli.conformance.model import AgentTarget, CheckResult, CheckSpec, Level, Outcome
from services.cli.conformance.runner import run_checks

__all__ = [
    "CATALOGUE",
    "AgentTarget",
    "CheckResult",
    "CheckSpec",
    "Level",
    "Outcome",
    "run_checks",
]
