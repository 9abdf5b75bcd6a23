"""What goes wrong with a suite as a whole."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Hashable, Iterator

from schemas.loader import ENOUGH_SCENARIOS, canonical_json
from schemas.scenario import Category, Scenario
from services.cli.lint.model import (
    Found,
    LintedScenario,
    LintedSuite,
    tools_named,
)
from services.cli.lint.user_rules import goals_of, spoken_of

_DIFFICULT = {"hostile", "confused"}
_MISSPELT = 0.9
_PERSONAS = ("defaults", "user", "personas")


def category_missing(suite: LintedSuite) -> Iterator[Found]:
    for category, count in _counts(suite).items():
        if count == 0:
            yield Found(("name",), f"no scenario is in category {category}")


def category_thin(suite: LintedSuite) -> Iterator[Found]:
    for category, count in _counts(suite).items():
        if 0 < count < ENOUGH_SCENARIOS:
            are = "scenario is" if count == 1 else "scenarios are"
            yield Found(("name",), f"{count} {are} in category {category}")


def _counts(suite: LintedSuite) -> dict[Category, int]:
    counts = Counter(source.scenario.category for source in suite.scenarios)
    return {category: counts[category] for category in Category}


def one_persona(suite: LintedSuite) -> Iterator[Found]:
    styles = _styles(suite)
    if len(styles) == 1:
        yield Found(_PERSONAS, f"every user is {styles.pop()}")


def easy_users(suite: LintedSuite) -> Iterator[Found]:
    styles = _styles(suite)
    if len(styles) > 1 and not styles & _DIFFICULT:
        yield Found(_PERSONAS, f"users are {', '.join(sorted(styles))} only")


def _styles(suite: LintedSuite) -> set[str]:
    """Of users whose goals are written down; a model plays the others as they are described."""
    return {
        persona.style
        for source in suite.scenarios
        if source.scenario.user is not None and source.scenario.all_conversations()
        for persona in source.scenario.user.personas
    }


def nothing_mined(suite: LintedSuite) -> Iterator[Found]:
    if all(source.scenario.origin == "written" for source in suite.scenarios):
        yield Found(("name",), "every scenario's origin is 'written'")


def duplicate(suite: LintedSuite) -> Iterator[tuple[LintedScenario, Found]]:
    first: dict[Hashable, str] = {}
    for source in suite.scenarios:
        situation = _situation(source.scenario)
        if situation in first:
            yield source, Found((), f"it is the situation of {first[situation]} again")
        first.setdefault(situation, source.scenario.id)


def _situation(scenario: Scenario) -> Hashable:
    """All that the agent can meet with: what is wanted, by whom, and in which world."""
    wanted = tuple(
        tuple(sorted(" ".join(text.casefold().split()) for text in says))
        for _, says, _ in goals_of(scenario)
    )
    words = tuple(sorted(text.casefold() for _, text in spoken_of(scenario)))
    narrative = "" if wanted else " ".join(scenario.simulation_context.casefold().split())
    rest = scenario.model_dump(
        mode="json",
        include={
            "setup": True, "world": True, "failures": True, "rules": True, "load": True,
            "user": {"personas", "facts", "consents"}, "category": True,
            "conversations": {"__all__": {"after", "consents"}},
        },
    )  # fmt: skip
    return wanted, words, narrative, canonical_json(rest)


def tool_unused(suite: LintedSuite) -> Iterator[Found]:
    named = {tool for source in suite.scenarios for _, tool in tools_named(source.scenario)}
    everything = any(f.tool == "*" for s in suite.scenarios for f in s.scenario.failures)
    for tool in sorted(set(suite.tools or ()) - named) if not everything else ():
        yield Found(("name",), f"no scenario names {tool}")


def tool_unknown(suite: LintedSuite) -> Iterator[tuple[LintedScenario, Found]]:
    counts = Counter(t for s in suite.scenarios for t in {t for _, t in tools_named(s.scenario)})
    for source in suite.scenarios:
        for path, tool in tools_named(source.scenario):
            if suite.tools is not None:
                if tool not in suite.tools:
                    yield source, Found(path, f"the agent has no tool {tool!r}")
            elif counts[tool] == 1:
                others = [name for name in counts if counts[name] > 1]
                close = difflib.get_close_matches(tool, others, n=1, cutoff=_MISSPELT)
                if close:
                    yield source, Found(path, f"{tool!r} is named here alone; is it {close[0]!r}?")
