"""What goes wrong with policies: bounds that nothing can reach."""

from __future__ import annotations

from collections.abc import Iterator

from schemas.policies import Policy, Within
from schemas.scenario import Scenario
from schemas.world_time import seconds
from services.cli.lint.model import Found, LintedScenario, LintedSuite


def policy_idle(source: LintedScenario, _suite: LintedSuite) -> Iterator[Found]:
    scenario = source.scenario
    for number, policy in enumerate(scenario.policies):
        for field, reason in _idle(policy, scenario):
            yield Found(("policies", number, policy.form, field), f"{policy.id}: {reason}")


def _idle(policy: Policy, scenario: Scenario) -> Iterator[tuple[str, str]]:
    rule = policy.requires or policy.follows
    within = rule.within if rule else None
    if isinstance(within, Within) and within.seconds is not None and not _time_passes(scenario):
        yield "within", "no time passes in the world, so nothing is ever too late"
    bound = scenario.limits.tool_calls
    if policy.at_most is not None and policy.at_most.call and policy.at_most.times >= bound:
        yield "times", f"a session has at most {bound} tool calls, so there are never more"


def _time_passes(scenario: Scenario) -> bool:
    world = scenario.world
    takes = [world.turn_takes, world.call_takes] if world else []
    return any(map(seconds, [*takes, *(talk.after for talk in scenario.conversations[1:])]))
