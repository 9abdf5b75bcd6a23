"""The step that has an agent's endpoint examined by the conformance checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from schemas.errors import InvalidDocument
from services.cli.conformance import AgentTarget, CheckResult, run_checks
from services.cli.doctor.context import Context
from services.cli.doctor.documents import read_document
from services.cli.doctor.examination import in_thread
from services.cli.doctor.model import Finding, Outcome, Settled, Step, Tell, failed, ok, skipped
from services.cli.errors import CliError
from services.runtime.settings import ConfigurationError

_TURNS = 40
"""More than the checks ever post."""
_CHECK = "conformance"


def conformance_steps(turn_timeout_s: float) -> list[Step[Context]]:
    needs = ("import", "serve", "registration", "auth_value", "endpoint")
    return [Step((_CHECK,), _conformance, needs=needs, timeout_s=_TURNS * turn_timeout_s)]


async def _conformance(context: Context, tell: Tell) -> None:
    agent, request = context.the_agent(), context.request
    if agent.kind != "http":
        tell(skipped(_CHECK, f"an agent of kind {agent.kind} has no contract to keep"))
        return
    value = await in_thread(lambda: context.auth_value(_CHECK))
    target = AgentTarget(
        url=agent.endpoint,
        auth_header=agent.auth_header,
        auth_value=value,
        tools=context.tools,
        responses=await in_thread(lambda: _responses(request.responses)),
        timeout_s=min(request.turn_timeout_s, float(agent.run_timeout_s)),
    )
    if request.instruction:
        target = replace(target, instruction=request.instruction)
    try:
        results = await run_checks(target, on_result=lambda result: tell(finding_of(result)))
    except ConfigurationError as error:
        mend = "free a port of the loopback interface"
        raise Settled(failed(_CHECK, f"the checks' own proxy: {error}", mend)) from None
    broken = sum(result.blocks for result in results)
    applied = sum(result.outcome != "not_applicable" for result in results)
    if not applied:
        tell(skipped(_CHECK, "none of the checks could be made"))
    elif broken:
        detail = f"{broken} of the {applied} checks that could be made failed"
        tell(failed(_CHECK, detail, "mend what is told above", *context.output()))
    else:
        tell(ok(_CHECK, f"the {applied} checks that could be made found nothing that blocks"))


def _responses(path: Path | None) -> Mapping[str, Any]:
    """What tools answer, by name. Raises Settled: that is not what the file holds."""
    if path is None:
        return {}
    mend = "write a JSON object with a response for each tool's name"
    try:
        found = read_document(path)
    except (CliError, InvalidDocument) as error:
        raise Settled(failed(_CHECK, str(error), mend)) from None
    if not isinstance(found, dict):
        raise Settled(failed(_CHECK, f"{path} holds no object", mend))
    return found


def finding_of(result: CheckResult) -> Finding:
    """A conformance check's result as one of the doctor's: what is only advised is a warning."""
    check = f"{_CHECK}.{result.id}"
    if result.outcome == "passed":
        return ok(check, f"{result.seen or result.expected} ({result.requirement})")
    if result.outcome == "not_applicable":
        return skipped(check, result.seen)
    outcome = Outcome.FAILED if result.blocks else Outcome.WARNING
    detail = f"expected: {result.expected} ({result.requirement}); seen: {result.seen}"
    return Finding(check, outcome, detail, result.mend)
