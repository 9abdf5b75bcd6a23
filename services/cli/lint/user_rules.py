"""What goes wrong with a scenario's user: what it is told, what it says, what contents it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from schemas.loader import canonical_json
from schemas.model import Pattern
from schemas.scenario import Scenario
from services.cli.lint import wording
from services.cli.lint.model import (
    Found,
    LintedScenario,
    LintedSuite,
    Path,
    calls_named,
    moments_named,
)

_BRACES = re.compile(r"\{(?!canary\.)([A-Za-z_][\w.-]*)\}")


def criteria_tone(source: LintedScenario, _suite: LintedSuite) -> Iterator[Found]:
    for number, criterion in enumerate(source.scenario.goals.criteria):
        if word := wording.tone(criterion):
            yield Found(("goals", "criteria", number), f"the criterion is about {word!r}")


def outcome_leaks(source: LintedScenario, _suite: LintedSuite) -> Iterator[Found]:
    scenario = source.scenario
    own = list(_own_knowledge(scenario))
    for path, text in _briefing(scenario):
        shared = wording.first_shared([text], _judged(scenario))
        if shared:
            yield Found(path, f"the user is told {shared!r}, as is the judge")
            continue
        for value in _expected_values(scenario):
            if wording.says(text, value) and not any(wording.says(known, value) for known in own):
                yield Found(path, f"the user is told {value!r}, which is part of the outcome")
                break
    answers = {
        value
        for _, call in calls_named(scenario)
        for value in wording.telling_values(dict(call.response))
    }
    for name, fact in scenario.user.facts.items() if scenario.user else ():
        if str(fact.value) in answers:
            yield Found(
                ("user", "facts", name), f"the user knows {fact.value!r}, which a tool has to find"
            )


def brief_judges(source: LintedScenario, _suite: LintedSuite) -> Iterator[Found]:
    for path, text in _briefing(source.scenario):
        if words := wording.judging(text):
            yield Found(path, f"the user's briefing says {words!r}")


def one_phrasing(source: LintedScenario, _suite: LintedSuite) -> Iterator[Found]:
    for path, says, _ in goals_of(source.scenario):
        if len({text.casefold().strip() for text in says}) < 2:
            yield Found((*path, "say"), "there is one way to ask for it")


def fact_missing(source: LintedScenario, _suite: LintedSuite) -> Iterator[Found]:
    facts = source.scenario.user.facts if source.scenario.user else {}
    for path, text in spoken_of(source.scenario):
        for name in _BRACES.findall(text):
            if name not in facts:
                yield Found(path, f"{{{name}}} is no fact of the user's")


def fact_unused(source: LintedScenario, suite: LintedSuite) -> Iterator[Found]:
    scenario = source.scenario
    if suite.tools is None or scenario.user is None or not scenario.all_conversations():
        return
    named = {name for _, text in spoken_of(scenario) for name in _BRACES.findall(text)}
    arguments = {word for names in suite.tools.values() for name in names for word in _words(name)}
    expected = set(_expected_values(scenario))
    for name, fact in scenario.user.facts.items():
        used = name in named or fact.ask or str(fact.value) in expected
        if not used and not _words(name) & arguments:
            yield Found(
                ("user", "facts", name),
                f"no tool of the agent takes {name!r}, and nothing else has to do with it",
            )


def pattern_vacuous(source: LintedScenario, _suite: LintedSuite) -> Iterator[Found]:
    scenario = source.scenario
    patterns: list[tuple[Path, Pattern]] = [
        ((*path, "done_when", number), pattern)
        for path, _, done_when in goals_of(scenario)
        for number, pattern in enumerate(done_when)
    ]
    patterns += [
        (("user", "actions", number, "when", which), pattern)
        for number, action in enumerate(scenario.user.actions if scenario.user else ())
        for which, pattern in enumerate(action.when)
    ]
    for what in ("says", "does_not_say"):
        patterns += [
            (("expect", what, n), pattern)
            for n, pattern in enumerate(getattr(scenario.expect, what))
        ]
    patterns += [
        (("recovery", "says", n), pattern) for n, pattern in enumerate(scenario.recovery.says)
    ]
    for path, moments in moments_named(scenario):
        for what in ("says", "user_says"):
            if (pattern := getattr(moments, what)) is not None:
                patterns.append(((*path, what), pattern))
    for path, pattern in patterns:
        if wording.matches_anything(pattern):
            yield Found(path, f"{str(pattern)!r} is found in any answer")


def goal_echoed(source: LintedScenario, _suite: LintedSuite) -> Iterator[Found]:
    for path, says, done_when in goals_of(source.scenario):
        for number, pattern in enumerate(done_when):
            said = next((text for text in says if pattern.found_in(text)), None)
            if said is not None and not wording.matches_anything(pattern):
                where = (*path, "done_when", number)
                yield Found(where, f"{str(pattern)!r} is found in the user's own {said!r}")


def goals_of(
    scenario: Scenario,
) -> Iterator[tuple[Path, tuple[str, ...], tuple[Pattern, ...]]]:
    """Each goal: where it stands, how it is asked for, and what contents the user."""
    if scenario.conversations:
        for number, conversation in enumerate(scenario.conversations):
            for index, goal in enumerate(conversation.goals):
                yield ("conversations", number, "goals", index), goal.say, goal.done_when
    elif scenario.user is not None:
        for index, goal in enumerate(scenario.user.goals):
            yield ("user", "goals", index), goal.say, goal.done_when


def spoken_of(scenario: Scenario) -> Iterator[tuple[Path, str]]:
    """What the user says in the scenario's own words, with the names of facts in braces."""
    for path, says, _ in goals_of(scenario):
        for number, text in enumerate(says):
            yield (*path, "say", number), text
    pushes = [(("user",), scenario.user.pushes)] if scenario.user else []
    places: list[tuple[Path, tuple[str, ...]]] = [*pushes]
    places += [(("conversations", n), c.pushes) for n, c in enumerate(scenario.conversations)]
    for path, texts in places:
        for number, text in enumerate(texts):
            yield (*path, "pushes", number), text
    for number, action in enumerate(scenario.user.actions if scenario.user else ()):
        place: Path = ("user", "actions", number)
        for name, value in action.arguments.items():
            yield (*place, "arguments", name), canonical_json(value)
        for which, text in enumerate(action.say):
            yield (*place, "say", which), text.replace("{response}", "")


def _briefing(scenario: Scenario) -> Iterator[tuple[Path, str]]:
    """What the user is told, apart from its goals and facts."""
    if scenario.simulation_context:
        yield ("simulation_context",), scenario.simulation_context
    for number, persona in enumerate(scenario.user.personas if scenario.user else ()):
        if persona.description:
            yield ("user", "personas", number, "description"), persona.description


def _own_knowledge(scenario: Scenario) -> Iterator[str]:
    """Texts that tell what the user may know: what it asks for, its facts, where it starts."""
    for _, text in spoken_of(scenario):
        yield text
    for fact in scenario.user.facts.values() if scenario.user else ():
        yield from (str(fact.value), *wording.telling_values(fact.value))
    yield from wording.telling_values(dict(scenario.setup.initial_slots))


def _judged(scenario: Scenario) -> Iterator[str]:
    """Texts that only the judge should know."""
    yield from scenario.goals.criteria
    for policy in scenario.policies:
        yield policy.description
    for pattern in (*scenario.expect.says, *scenario.expect.does_not_say):
        yield wording.literal(pattern)


def _expected_values(scenario: Scenario) -> Iterator[str]:
    yield from wording.telling_values(dict(scenario.expect.state))
    for call in scenario.expect.calls:
        yield from wording.telling_values(dict(call.arguments))
        yield from wording.telling_values(dict(call.response))


def _words(name: str) -> set[str]:
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return {word.lower() for word in re.findall(r"[^\W_]+", spaced)} - {"id", "number", "name"}
