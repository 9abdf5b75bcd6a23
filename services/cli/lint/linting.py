"""The linter: reads a suite's texts, applies the rules, and leaves out what is allowed.

A finding is allowed by a comment that gives the reason, in the scenario's file, or in `suite.yaml`
for the whole suite:

    # lint: allow one-phrasing: the wording is a customer's own
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from schemas.loader import SUITE_FILE, located_suite, parse_suite, scenario_of
from schemas.registry import Suite
from services.cli.lint import policy_rules, scenario_rules, suite_rules, user_rules
from services.cli.lint.catalogue import BY_ID
from services.cli.lint.model import (
    Finding,
    Found,
    LintedScenario,
    LintedSuite,
    Place,
    Severity,
)

ScenarioRule = Callable[[LintedScenario, LintedSuite], Iterator[Found]]

SUITE_RULES: Mapping[str, Callable[[LintedSuite], Iterator[Found]]] = {
    "category-missing": suite_rules.category_missing,
    "category-thin": suite_rules.category_thin,
    "one-persona": suite_rules.one_persona,
    "easy-users": suite_rules.easy_users,
    "nothing-mined": suite_rules.nothing_mined,
    "tool-unused": suite_rules.tool_unused,
}
COMPARING_RULES: Mapping[str, Callable[[LintedSuite], Iterator[tuple[LintedScenario, Found]]]] = {
    "duplicate": suite_rules.duplicate,
    "tool-unknown": suite_rules.tool_unknown,
}
SCENARIO_RULES: tuple[tuple[str, ScenarioRule], ...] = (
    ("criteria-tone", user_rules.criteria_tone),
    ("outcome-leaks", user_rules.outcome_leaks),
    ("brief-judges", user_rules.brief_judges),
    ("one-phrasing", user_rules.one_phrasing),
    ("fact-missing", user_rules.fact_missing),
    ("fact-unused", user_rules.fact_unused),
    ("pattern-vacuous", user_rules.pattern_vacuous),
    ("goal-echoed", user_rules.goal_echoed),
    ("tool-unknown", scenario_rules.unknown_arguments),
    ("failure-idle", scenario_rules.failure_idle),
    ("failure-optional", scenario_rules.failure_optional),
    ("nothing-unsafe", scenario_rules.nothing_unsafe),
    ("no-time-passes", scenario_rules.no_time_passes),
    ("load-alone", scenario_rules.load_alone),
    ("limits-too-tight", scenario_rules.limits_too_tight),
    ("budget-idle", scenario_rules.budget_idle),
    ("end-unknown", scenario_rules.end_unknown),
    ("contradiction", scenario_rules.contradiction),
    ("policy-idle", policy_rules.policy_idle),
)
_ALLOW = re.compile(r"^[ \t]*#[ \t]*lint:[ \t]*allow[ \t]+([\w-]+)[ \t]*:[ \t]*(\S.*)$", re.M)
_ORDER = list(Severity)


def read_linted(
    suite_text: str,
    scenario_texts: Mapping[str, str],
    tools: Mapping[str, frozenset[str]] | None = None,
    whole: Suite | None = None,
) -> LintedSuite:
    """A suite as the linter needs it.

    Args:
        tools: The agent's tools, each with the names of its arguments, where they are known.
        whole: The suite with what its texts alone do not have, such as corpora; made of them if
            None.

    Raises:
        InvalidDocument: the suite is not valid; with every problem of every file.
    """
    suite = whole or parse_suite(suite_text, scenario_texts)
    root, trees = located_suite(suite_text, scenario_texts)
    scenarios = tuple(
        LintedScenario(entry.file, scenario_of(entry), trees[entry.file])
        for entry in suite.scenarios
    )
    texts = {SUITE_FILE: suite_text, **scenario_texts}
    return LintedSuite(SUITE_FILE, root, texts, scenarios, tools)


def lint(suite: LintedSuite, disabled: Collection[str] = ()) -> list[Finding]:
    """What the rules find, by file and place.

    Args:
        disabled: Ids of rules that are not to be applied.
    """
    return settled(suite, static_findings(suite), disabled)


def static_findings(suite: LintedSuite) -> Iterator[Finding]:
    """Everything the rules find that need no session, allowed or not."""
    for name, suite_rule in SUITE_RULES.items():
        for found in suite_rule(suite):
            yield finding(name, found, suite.place(found.path))
    for name, comparing in COMPARING_RULES.items():
        for source, found in comparing(suite):
            yield about(name, source, found)
    for source in suite.scenarios:
        for name, rule in SCENARIO_RULES:
            for found in rule(source, suite):
                yield about(name, source, found)


def about(rule: str, source: LintedScenario, found: Found) -> Finding:
    """A finding about one scenario."""
    return finding(rule, found, source.place(found.path), source.scenario.id)


def finding(rule: str, found: Found, place: Place, scenario: str = "") -> Finding:
    """A finding in the words of the catalogue."""
    spec = BY_ID[rule]
    return Finding(rule, spec.severity, scenario, *place, found.message, spec.mend)


def settled(
    suite: LintedSuite,
    findings: Iterable[Finding],
    disabled: Collection[str],
    *,
    ran: bool = False,
    mutated: bool = False,
) -> list[Finding]:
    """The findings that stand, in order, and those about allowances for nothing.

    Args:
        ran: Whether the rules that need `run` were applied.
        mutated: Whether those that need `against` were.
    """
    applied = {"", *(["run"] if ran else []), *(["against"] if mutated else [])}
    applied |= {"agent"} if suite.tools is not None else set()
    allowed = {
        (file, match[1]): text.count("\n", 0, match.start(1)) + 1
        for file, text in suite.texts.items()
        for match in _ALLOW.finditer(text)
    }
    used: set[tuple[str, str]] = set()
    files = {source.scenario.id: source.file for source in suite.scenarios}
    standing: dict[tuple[object, ...], Finding] = {}
    for one in findings:
        keys = [(one.file, one.rule), (suite.file, one.rule)]
        keys += [(files[one.scenario], one.rule)] if one.scenario else []
        matching = [key for key in keys if key in allowed]
        used.update(matching)
        if not matching:
            # What stands in the defaults is found once for each scenario, and told once.
            standing.setdefault((one.rule, one.file, one.line, one.column, one.message), one)
    for (file, rule), line in allowed.items():
        unsure = rule in BY_ID and BY_ID[rule].needs not in applied
        if (file, rule) not in used and not unsure:
            what = "is not found here" if rule in BY_ID else "is no rule"
            idle = finding("allow-idle", Found((), f"{rule!r} {what}"), Place(file, line, 1))
            standing[rule, file, line] = idle
    return sorted(
        (one for one in standing.values() if one.rule not in disabled),
        key=lambda f: (f.file != suite.file, f.file, f.line, f.column, _ORDER.index(f.severity)),
    )
