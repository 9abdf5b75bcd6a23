"""A scenario as people read it: who knows what. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from schemas.briefs import judge_brief
from schemas.faults import CallSelector, Failure
from schemas.loader import canonical_json
from schemas.scenario import Load, Scenario, Variation
from schemas.spans import NOTHING
from schemas.user import Conversation, UserAction
from schemas.world_setup import WorldSetup
from services.cli.lint.telling import told_actors, told_call, told_policy

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
        for tool in user.tools:
            yield f"has {tool.name}" + (f": {tool.description}" if tool.description else "")
        yield from map(_action, user.actions)
        if user.think is not None:
            drawn = user.think.model_dump(exclude_unset=True)
            parts = ", ".join(f"{name} {value}" for name, value in drawn.items())
            yield f"thinks before each turn, drawn with {parts}"
        elif user.think_ms:
            yield f"thinks for {user.think_ms} ms before each turn"
        if user.recording:
            yield "says again, for as long as it fits, what was recorded:"
            for line in user.recording:
                end = f" ({line.ending})" if line.ending else ""
                yield f"  {line.who}: {' '.join(line.text.split())}{end}"
        if user.pushes_from:
            yield f"what it says when refused is from the corpus {user.pushes_from}"
    if not conversations and not (user is not None and user.recording):
        yield "has no goals written down: a model plays it from the briefing"
    for number, conversation in enumerate(conversations, start=1):
        if len(conversations) > 1:
            yield f"conversation {number}, after {conversation.after}:"
        yield from _conversation(conversation, "  " if len(conversations) > 1 else "")


def _action(action: UserAction) -> str:
    arguments = ", ".join(f"{name}={_json(value)}" for name, value in action.arguments.items())
    said = f", and says {' | '.join(action.say)}" if action.say else ""
    return f"on hearing {_listed(action.when)} does {action.tool}({arguments}){said}"


def _persona(persona: Any) -> str:
    described = f": {persona.description}" if persona.description else ""
    weight = f", weight {persona.weight:g}" if persona.weight != 1 else ""
    return f"{persona.name} ({persona.style}, patience {persona.patience}{weight}{described})"


def _conversation(conversation: Conversation, indent: str) -> Iterator[str]:
    for goal in conversation.goals:
        yield f"{indent}wants: {' | '.join(goal.say)}"
        yield f"{indent}is content on hearing {_listed(goal.done_when)}"
    for text in conversation.pushes:
        yield f"{indent}when refused: {' '.join(text.split())}"
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
        yield from _world(world)
    if scenario.failure_profile:
        factor = scenario.profile_multiplier
        times = f", rates times {factor:g}" if factor != 1 else ""
        yield f"failure profile {scenario.failure_profile}{times}"
    for failure in scenario.failures:
        must = "must strike" if failure.is_required else "may strike"
        yield f"failure {failure.id}: {_failure(failure)} in {_selector(failure)}; {must}"
    for rule in scenario.rules:
        yield f"rule {rule.id}: {_selector(rule)} answers {_json(rule.respond)}"


def _world(world: WorldSetup) -> Iterator[str]:
    who = {"world": "", "schema": "answers made up from output schemas",
           "model": "a model that answers"}[world.answers]  # fmt: skip
    name = f"world {world.name}" if world.name else "no world"
    if who and world.name:
        who = f"{who} for what it has not"
    yield f"{name} at {world.now}" + (f": {who}" if who else "")
    if world.briefing:
        yield f"the model is told: {' '.join(world.briefing.split())}"
    takes = (("turn", world.turn_takes), ("call", world.call_takes))
    told = [f"each {what} takes {time}" for what, time in takes if int(time[:-1])]
    if told:
        yield f"in its time {' and '.join(told)}"
    if world.state:
        yield f"with {_json(world.state)}"


def _failure(failure: Failure) -> str:
    details: list[str] = [failure.kind]
    if failure.field:
        details.append(f"of {failure.field}")
    if failure.delay_ms:
        details.append(f"{failure.delay_ms} ms")
    if failure.latency is not None:
        drawn = failure.latency.model_dump(exclude_unset=True, exclude_none=True)
        details.append(f"for {', '.join(f'{name} {value}' for name, value in drawn.items())}")
    if failure.corpus:
        details.append(f"from the corpus {failure.corpus}")
    if len(failure.texts) > 1:
        details.append(f"one of {len(failure.texts)} texts, such as")
    if failure.texts:
        details.append(_json(" ".join(failure.texts[0].split())))
    return " ".join(details)


def _selector(selector: CallSelector) -> str:
    text = "any tool" if selector.tool == "*" else selector.tool
    if selector.arguments:
        text += f" with {_json(selector.arguments)}"
    if selector.like:
        text += f" like {_json(selector.like)}"
    if selector.calls:
        text += f", call {', '.join(map(str, selector.calls))}"
    if selector.conversations:
        text += f", conversation {', '.join(map(str, selector.conversations))}"
    if selector.after != NOTHING:
        text += f", after {selector.after}"
    if selector.until is not None:
        text += f", until {selector.until}"
    if selector.probability < 1:
        text += f", {100 * selector.probability:.4g}% of them"
    if selector.burst > 1:
        text += f", {selector.burst} in a row"
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
        yield f"called {times}: {told_call(call)}"
    yield from (f"never called: {told_call(call)}" for call in expect.no_calls)
    if expect.tau2 is not None:
        yield f"tau2's reward is 1 for task {expect.tau2.task} of {expect.tau2.domain}"
    yield from (f"says {_listed([pattern])}" for pattern in expect.says)
    yield from (f"never says {_listed([pattern])}" for pattern in expect.does_not_say)
    for name, looks in scenario.canaries.items():
        yield f"never brings out canary {name}, a made-up {looks} of each session's own"
    yield from (f"criterion: {criterion}" for criterion in goals.criteria)
    yield from (f"assertion: {_json(assertion)}" for assertion in goals.assertions)
    yield from (f"{p.severity} rule {p.id}: {told_policy(p)}" for p in scenario.policies)
    yield from told_actors(scenario.actors)
    if scenario.failures:
        recovery = scenario.recovery
        said = f", which sounds like {_listed(recovery.says)}" if recovery.says else ""
        yield f"recovers by: {recovery.by}{said}"
    budgets = scenario.budgets.model_dump(exclude_none=True)
    if budgets:
        yield "within " + ", ".join(f"{value:g} {name}" for name, value in budgets.items())


def _run(scenario: Scenario) -> Iterator[str]:
    yield f"category {scenario.category}, version {scenario.version}, origin {scenario.origin}"
    if scenario.owner:
        yield f"owner {scenario.owner}"
    limits = scenario.limits.model_dump()
    told = (f"{value:g} {name}" for name, value in limits.items() if value)
    yield f"ends after {', '.join(told)}"
    if scenario.load is not None:
        yield from _load(scenario.load)
    for name, value in scenario.labels.items():
        yield f"label {name}: {value}"


def _load(load: Load) -> Iterator[str]:
    if (arrival := load.arrival) is None:
        yield f"{load.sessions} sessions, {load.concurrency} at once"
    else:
        ramp = f", after {arrival.ramp_s:g} s of rising to that" if arrival.ramp_s else ""
        steps = "".join(f", after {s.for_s:g} s of {s.per_s:g} a second" for s in arrival.steps)
        burst = f", {arrival.burst} together" if arrival.burst > 1 else ""
        yield (
            f"{load.sessions} sessions, {arrival.per_s:g} a second ({arrival.spacing}){burst}"
            f"{ramp}{steps}; {load.concurrency} at once at most"
        )
    bounds = load.objectives.model_dump(exclude_none=True) if load.objectives else {}
    for name, bound in bounds.items():
        least = "at least" if name in ("completion_rate", "sessions_per_s") else "at most"
        yield f"objective: {name} {least} {bound:g}"


def _listed(patterns: Sequence[str]) -> str:
    return " or ".join(f"/{pattern}/" for pattern in patterns)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _json(value: Any) -> str:
    return canonical_json(dict(value) if isinstance(value, Mapping) else value)
