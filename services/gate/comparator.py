"""Two runs' aggregates, compared per scenario and dimension. Figures only; no verdict here.

Directions: for gates and quality less is worse, for measures more is worse. Where a scenario's
category or a dimension's kind differs between the two runs, the stricter one counts: renaming a
category is no way around the gate.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import fsum

from schemas.gate import DiffEntry, Stat
from schemas.scores import DimensionAggregate, Example, RunAggregates, ScenarioAggregate
from services.gate.policy import ALL_GATES, DEFAULT, INFORMATIONAL, Policy, is_hard

REGRESSED, IMPROVED, UNCHANGED = "regressed", "improved", "unchanged"
NEW, MISSING, INCOMPARABLE = "new", "missing", "incomparable"
GATE, QUALITY, MEASURE = "gate", "quality", "measure"

#: Means are rounded floats; a difference below this is none.
_EPSILON = 1e-9


def diff_aggregates(
    new: RunAggregates, old: RunAggregates, policy: Policy = DEFAULT
) -> tuple[DiffEntry, ...]:
    """Everything in which `new` differs from `old`: scenarios by id, dimensions by name.

    A scenario that only one side has (or that never ran in `new`) is one entry with an empty
    dimension; entries over all scenarios together have an empty scenario id and come first.
    """
    before = {scenario.scenario_id: scenario for scenario in old.scenarios}
    after = {scenario.scenario_id: scenario for scenario in new.scenarios}
    common = [i for i in sorted(before) if i in after and ran(after[i]) and ran(before[i])]
    entries = list(_over_all([(after[i], before[i]) for i in common], policy))
    for scenario_id in sorted(before.keys() | after.keys()):
        a, b = after.get(scenario_id), before.get(scenario_id)
        if a is None or not ran(a):
            known = b or a
            assert known is not None
            baseline = stat(all_gates(b)) if b is not None and ran(b) else None
            entries.append(_entry(known, "", GATE, MISSING, baseline=baseline))
        elif b is None or not ran(b):
            whole = all_gates(a)
            entries.append(_entry(a, "", GATE, NEW, candidate=stat(whole), examples=whole.examples))
        else:
            entries.extend(_scenario(a, b, policy))
    return tuple(entry for entry in entries if _says_something(entry))


def ran(scenario: ScenarioAggregate) -> bool:
    """Whether any of the scenario's sessions came back at all, spoilt ones included."""
    return scenario.passed + scenario.failed + scenario.unscored + scenario.invalid > 0


def all_gates(scenario: ScenarioAggregate) -> DimensionAggregate:
    """The scenario as one gate. Lost sessions are failures: they were asked for and never came."""
    examples: tuple[Example, ...] = next(
        (
            d.examples
            for d in sorted(scenario.dimensions, key=lambda d: d.dimension)
            if d.kind == GATE and d.examples
        ),
        (),
    )
    valid = scenario.passed + scenario.failed
    return DimensionAggregate(
        dimension=ALL_GATES,
        kind=GATE,
        scored=valid,
        unscored=scenario.unscored,
        passed=scenario.passed,
        failed=scenario.failed + scenario.lost,
        examples=examples,
    )


def counted(dimension: DimensionAggregate) -> int:
    """The denominator: for gates every session in which the question arose, scored or not."""
    if dimension.kind == GATE:
        return dimension.passed + dimension.failed + dimension.unscored
    return dimension.scored


def stat(dimension: DimensionAggregate) -> Stat:
    """One side's figure: pass rate of a gate, mean otherwise."""
    count = counted(dimension)
    if dimension.kind == GATE:
        value = dimension.passed / count if count else 0.0
    else:
        value = dimension.mean
    return Stat(sessions=count, value=value, unscored=dimension.unscored)


def _scenario(
    new: ScenarioAggregate, old: ScenarioAggregate, policy: Policy
) -> Iterator[DiffEntry]:
    after = {d.dimension: d for d in (all_gates(new), *new.dimensions)}
    before = {d.dimension: d for d in (all_gates(old), *old.dimensions)}
    judged = new.passed + new.failed + new.unscored > 0
    for name in sorted((before.keys() | after.keys()) - INFORMATIONAL):
        a, b = after.get(name), before.get(name)
        has_a = a is not None and counted(a) > 0
        has_b = b is not None and counted(b) > 0
        kind = _stricter(a, b)
        if has_a and has_b:
            assert a is not None
            assert b is not None
            yield _compare(new, old, name, kind, a, b, policy)
        elif has_a:
            assert a is not None
            yield _entry(new, name, kind, NEW, candidate=stat(a), examples=a.examples)
        elif has_b and judged:
            # Without a judged session the whole scenario says nothing, which is another finding.
            assert b is not None
            candidate = stat(a) if a is not None else None
            change = INCOMPARABLE if candidate and candidate.unscored else MISSING
            yield _entry(new, name, kind, change, baseline=stat(b), candidate=candidate)


def _compare(
    new: ScenarioAggregate,
    old: ScenarioAggregate,
    name: str,
    kind: str,
    a: DimensionAggregate,
    b: DimensionAggregate,
    policy: Policy,
) -> DiffEntry:
    hard, tolerance = False, 0.0
    if a.kind != b.kind:
        change, method = INCOMPARABLE, f"kind changed from {b.kind} to {a.kind}"
    elif kind == GATE:
        hard = is_hard(name, new.category, old.category)
        tolerance = 0.0 if hard else min(policy.gate(new.category), policy.gate(old.category))
        change, method = _rate_change(a, b, tolerance), "pass rate"
    else:
        if kind == QUALITY:
            tolerance = min(policy.quality(new.category), policy.quality(old.category))
            worse, method = b.mean - a.mean, "mean"
        else:
            tolerance = policy.measure(name, b.mean)
            worse, method = a.mean - b.mean, "mean, less is better"
        change = _mean_change(worse, tolerance)
        if change != REGRESSED and _unscored_share(a) > _unscored_share(b):
            change = INCOMPARABLE
    return _entry(
        new,
        name,
        kind,
        change,
        hard=hard and change == REGRESSED,
        baseline=stat(b),
        candidate=stat(a),
        tolerance=tolerance,
        method=method,
        examples=a.examples if change == REGRESSED else (),
    )


def _rate_change(a: DimensionAggregate, b: DimensionAggregate, tolerance: float) -> str:
    """Exact arithmetic: a hard gate's tolerance of nothing must not hang on a rounding."""
    allowed = Fraction(tolerance).limit_denominator(1_000_000)
    was = Fraction(b.passed, counted(b))
    best = Fraction(a.passed + a.unscored, counted(a))
    worst = Fraction(a.passed, counted(a))
    if was - best > allowed:
        return REGRESSED
    if was - worst > allowed:
        # Only the sessions that nobody could score make it worse: no evidence either way.
        return INCOMPARABLE
    return IMPROVED if worst > was else UNCHANGED


def _mean_change(worse: float, tolerance: float) -> str:
    if worse > tolerance + _EPSILON:
        return REGRESSED
    return IMPROVED if worse < -tolerance - _EPSILON else UNCHANGED


def _unscored_share(dimension: DimensionAggregate) -> float:
    total = dimension.scored + dimension.unscored
    return dimension.unscored / total if total else 0.0


def _over_all(
    pairs: list[tuple[ScenarioAggregate, ScenarioAggregate]], policy: Policy
) -> Iterator[DiffEntry]:
    """Quality and passed sessions over all common scenarios, each scenario weighing the same."""
    sides: dict[tuple[str, str], list[tuple[Stat, Stat, int]]] = {}
    for new, old in pairs:
        before = {d.dimension: d for d in (all_gates(old), *old.dimensions)}
        for a in (all_gates(new), *new.dimensions):
            b = before.get(a.dimension)
            if b is None or a.kind != b.kind or not counted(a) or not counted(b):
                continue
            if a.kind == QUALITY or a.dimension == ALL_GATES:
                rows = sides.setdefault((a.dimension, a.kind), [])
                rows.append((stat(a), stat(b), a.unscored if a.kind == GATE else 0))
    for (name, kind), rows in sorted(sides.items()):
        new_stat = _mean_stat([row[0] for row in rows])
        old_stat = _mean_stat([row[1] for row in rows])
        # The unscored could all have passed: what they cost is no evidence of a drop.
        benefit = fsum(open_ / row.sessions for row, _, open_ in rows) / len(rows)
        change = _mean_change(old_stat.value - new_stat.value - benefit, policy.aggregate)
        yield DiffEntry(
            scenario_id="",
            category="",
            dimension=name,
            kind=kind,
            change=change if change == REGRESSED else UNCHANGED,
            baseline=old_stat,
            candidate=new_stat,
            tolerance=policy.aggregate,
            method="mean over scenarios",
        )


def _mean_stat(stats: list[Stat]) -> Stat:
    return Stat(
        sessions=sum(s.sessions for s in stats),
        value=fsum(s.value for s in stats) / len(stats),
        unscored=sum(s.unscored for s in stats),
    )


def _stricter(a: DimensionAggregate | None, b: DimensionAggregate | None) -> str:
    kinds = {d.kind for d in (a, b) if d is not None}
    return next((kind for kind in (GATE, QUALITY) if kind in kinds), MEASURE)


def _entry(
    scenario: ScenarioAggregate,
    dimension: str,
    kind: str,
    change: str,
    *,
    hard: bool = False,
    baseline: Stat | None = None,
    candidate: Stat | None = None,
    tolerance: float = 0.0,
    method: str = "",
    examples: tuple[Example, ...] = (),
) -> DiffEntry:
    return DiffEntry(
        scenario_id=scenario.scenario_id,
        category=scenario.category,
        dimension=dimension,
        kind=kind,
        change=change,
        hard=hard,
        baseline=baseline,
        candidate=candidate,
        tolerance=tolerance,
        method=method,
        examples=examples,
    )


def _says_something(entry: DiffEntry) -> bool:
    return entry.change != UNCHANGED or entry.baseline != entry.candidate
