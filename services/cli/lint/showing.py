"""A scenario as people read it: who knows what. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from schemas.briefs import judge_brief
from schemas.expectations import CallMatch, ExpectedCall, Policy
from schemas.faults import CallSelector, Failure
from schemas.loader import canonical_json
from schemas.scenario import Scenario, Variation
from schemas.user import Conversation

_USER, _AGENT, _TOOLS, _JUDGE, _RUN = (
    "The user knows", "The agent is given", "The tools know", "The judge knows", "The run",
)  # fmt: skip


def shown(scenario: Scenario) -> str:
    """The scenario by who gets to know it, ready to be printed."""
    lines = [f"{scenario.id}: {scenario.name}"]
    lines += (f"in variation {_variation(variation)}" for variation in scenario.variations)
    for title, part in (
        (_USER, _user(scenario)),
        (_AGENT, _agent(scenario)),
        (_TOOLS, _tools(scenario)),
        (_JUDGE, _judge(scenario)),
        (_RUN, _run(scenario)),
    ):
        lines += ["", title, *(f"  {line}" for line in part)]
    return "\n".join(lines)


def _variation(variation: Variation) -> str:
    weight = f" (weight {variation.weight:g})" if variation.weight != 1 else ""
    changes = [f"{name} is {_json(value)}" for name, value in variation.facts.items()]
    if variation.initial_slots:
        changes.append(f"the agent is given {_json(variation.initial_slots)}")
    if variation.state:
        changes.append(f"the world has {_json(variation.state)}")
    if variation.now:
        changes.append(f"it is {variation.now}")
    return f"{variation.name}{weight} {', '.join(changes) or 'everything is as below'}"


def _user(scenario: Scenario) -> Iterator[str]:
    if scenario.simulation_context:
        yield f"briefing: {' '.join(scenario.simulation_context.split())}"
    user, conversations = scenario.user, scenario.all_conversations()
    if user is not None:
        yield f"is one of: {', '.join(map(_persona, user.personas))}"
        for name, fact in user.facts.items():
            asked = f", asked for as {_listed(fact.ask)}" if fact.ask else ""
            yield f"fact {name}: {_json(fact.value)}{asked}"
        if user.think_ms:
            yield f"thinks for {user.think_ms} ms before each turn"
    if not conversations:
        yield "has no goals written down: a model plays it from the briefing"
    for number, conversation in enumerate(conversations, start=1):
        if len(conversations) > 1:
            yield f"conversation {number}, after {conversation.after}:"
        yield from _conversation(conversation, "  " if len(conversations) > 1 else "")


def _persona(persona: Any) -> str:
    described = f": {persona.description}" if persona.description else ""
    weight = f", weight {persona.weight:g}" if persona.weight != 1 else ""
    return f"{persona.name} ({persona.style}, patience {persona.patience}{weight}{described})"


def _conversation(conversation: Conversation, indent: str) -> Iterator[str]:
    for goal in conversation.goals:
        yield f"{indent}wants: {' | '.join(goal.say)}"
        yield f"{indent}is content on hearing {_listed(goal.done_when)}"
    for text in conversation.pushes:
        yield f"{indent}when refused: {text}"
    if not conversation.consents:
        yield f"{indent}says no when asked whether to go ahead"


def _agent(scenario: Scenario) -> Iterator[str]:
    slots = scenario.setup.initial_slots
    yield from (f"{name}: {_json(value)}" for name, value in slots.items())
    if not slots:
        yield "nothing but what the user says"


def _tools(scenario: Scenario) -> Iterator[str]:
    world = scenario.world
    if world is None:
        yield "no world"
    else:
        yield f"world {world.name} at {world.now}"
        if world.state:
            yield f"with {_json(world.state)}"
    for failure in scenario.failures:
        must = "must strike" if failure.is_required else "may strike"
        yield f"failure {failure.id}: {_failure(failure)} in {_selector(failure)}; {must}"
    for rule in scenario.rules:
        yield f"rule {rule.id}: {_selector(rule)} answers {_json(rule.respond)}"


def _failure(failure: Failure) -> str:
    details: list[str] = [failure.kind]
    if failure.field:
        details.append(f"of {failure.field}")
    if failure.delay_ms:
        details.append(f"{failure.delay_ms} ms")
    if failure.content:
        details.append(_json(" ".join(failure.content.split())))
    return " ".join(details)


def _selector(selector: CallSelector) -> str:
    text = "any tool" if selector.tool == "*" else selector.tool
    if selector.arguments:
        text += f" with {_json(selector.arguments)}"
    if selector.calls:
        text += f", call {', '.join(map(str, selector.calls))}"
    if selector.probability < 1:
        text += f", {selector.probability:.0%} of them"
    return text + (f", {_times(selector.times)} at most" if selector.times else "")


def _judge(scenario: Scenario) -> Iterator[str]:
    expect, goals = scenario.expect, scenario.goals
    yield f"aim: {' '.join(judge_brief(scenario).outcome.split())}"
    yield f"ends with {' or '.join(expect.end)}"
    for pointer, value in expect.state.items():
        yield f"{pointer or 'the state'} is {_json(value)} at the end"
    for pointer in expect.unchanged:
        yield f"{pointer or 'the state'} is as it was"
    for call in expect.calls:
        times = _times(call.times) if call.times else "at least once"
        yield f"called {times}: {_call(call)}"
    yield from (f"never called: {_call(call)}" for call in expect.no_calls)
    yield from (f"says {_listed([pattern])}" for pattern in expect.says)
    yield from (f"never says {_listed([pattern])}" for pattern in expect.does_not_say)
    yield from (f"criterion: {criterion}" for criterion in goals.criteria)
    yield from (f"assertion: {_json(assertion)}" for assertion in goals.assertions)
    yield from (f"{p.severity} rule {p.id}: {_policy(p)}" for p in scenario.policies)
    if scenario.failures:
        recovery = scenario.recovery
        said = f", which sounds like {_listed(recovery.says)}" if recovery.says else ""
        yield f"recovers by: {recovery.by}{said}"
    budgets = scenario.budgets.model_dump(exclude_none=True)
    if budgets:
        yield "within " + ", ".join(f"{value:g} {name}" for name, value in budgets.items())


def _call(call: CallMatch | ExpectedCall) -> str:
    text = f"{call.tool}({', '.join(f'{k}={_json(v)}' for k, v in call.arguments.items())})"
    if call.ok is not None:
        text += " succeeding" if call.ok else " failing"
    return text + (f" answering {_json(call.response)}" if call.response else "")


def _policy(policy: Policy) -> str:
    words = ""
    if policy.never is not None:
        parts = [f"no {_call(policy.never.call)}"] if policy.never.call else []
        parts += [f"never says {_listed([policy.never.says])}"] if policy.never.says else []
        words = ", ".join(parts)
    elif policy.requires is not None:
        words = f"{_call(policy.requires.call)} only after {_call(policy.requires.first)}"
        words += f", same {', '.join(policy.requires.same)}" if policy.requires.same else ""
    elif policy.at_most is not None:
        words = f"{_call(policy.at_most.call)} at most {_times(policy.at_most.times)}"
        words += f" for each {', '.join(policy.at_most.per)}" if policy.at_most.per else ""
    elif policy.follows is not None:
        within = f" within {policy.follows.within} calls" if policy.follows.within else ""
        words = f"{_call(policy.follows.call)} is followed by {_call(policy.follows.then)}{within}"
    return f"{policy.description.strip()} ({words})" if policy.description else words


def _run(scenario: Scenario) -> Iterator[str]:
    yield f"category {scenario.category}, version {scenario.version}, origin {scenario.origin}"
    if scenario.owner:
        yield f"owner {scenario.owner}"
    limits = scenario.limits.model_dump()
    told = (f"{value:g} {name}" for name, value in limits.items() if value)
    yield f"ends after {', '.join(told)}"
    if scenario.load is not None:
        yield f"{scenario.load.sessions} sessions, {scenario.load.concurrency} at once"
    for name, value in scenario.labels.items():
        yield f"label {name}: {value}"


def _listed(patterns: Sequence[str]) -> str:
    return " or ".join(f"/{pattern}/" for pattern in patterns)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _json(value: Any) -> str:
    return canonical_json(dict(value) if isinstance(value, Mapping) else value)
