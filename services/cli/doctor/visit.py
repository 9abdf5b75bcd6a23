"""Which steps a request asks for, and taking them."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

from services.cli.doctor.agent import (
    agent_at_url,
    application_steps,
    endpoint_steps,
    registration_steps,
)
from services.cli.doctor.context import Context, Request
from services.cli.doctor.contract import conformance_steps
from services.cli.doctor.environment import environment_steps
from services.cli.doctor.examination import examine, in_thread
from services.cli.doctor.lists import dataset_steps, tools_steps
from services.cli.doctor.model import Finding, Step, Tell
from services.cli.doctor.proxy import proxy_steps
from services.runtime.agents.redaction import Redactor
from services.runtime.agents.secrets import SecretMissing, resolve

_SECRET_S = 5.0


def steps_for(request: Request) -> list[Step[Context]]:
    """The steps, in order. Whoever asks about nothing in particular asks about this machine."""
    steps: list[Step[Context]] = []
    if request.app:
        steps += application_steps(request.import_timeout_s)
    if request.file:
        steps += registration_steps()
    if request.has_agent:
        steps += endpoint_steps(request.timeout_s)
    if request.has_agent or request.proxy:
        steps += proxy_steps(request.timeout_s)
    if request.has_agent or request.tools:
        steps += tools_steps()
    if request.csv:
        steps += dataset_steps()
    if request.conformance:
        steps += conformance_steps(request.turn_timeout_s)
    return steps or environment_steps()


async def diagnose(request: Request, tell: Tell) -> list[Finding]:
    """One finding for each check, in the order in which they were told.

    Args:
        tell: Told each finding as soon as it is known. The agent's secret is in none.
    """
    context = Context(request)
    if request.url:
        agent_at_url(context)
    await _learn_secret(context)

    def tell_redacted(finding: Finding) -> None:
        tell(_redacted(context, finding))

    try:
        findings = await examine(steps_for(request), context, tell_redacted)
        return [_redacted(context, finding) for finding in findings]
    finally:
        if context.application is not None:
            await in_thread(context.application.stop)


async def _learn_secret(context: Context) -> None:
    """Know the secret before anything is told; that there is none is a later step's to tell."""
    reference = context.request.auth_value_ref
    if not reference:
        return
    with contextlib.suppress(SecretMissing, TimeoutError):
        async with asyncio.timeout(_SECRET_S):
            value = await in_thread(lambda: resolve(reference, "the agent"))
        context.redactor = Redactor([value])


def _redacted(context: Context, finding: Finding) -> Finding:
    """The finding without the agent's auth value, wherever the agent may have shown it."""
    hide = context.redactor.text
    return replace(
        finding,
        detail=hide(finding.detail),
        mend=hide(finding.mend),
        lines=tuple(map(hide, finding.lines)),
    )
