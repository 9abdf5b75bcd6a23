"""The gate's word on a run, and the baselines it compares with."""

from __future__ import annotations

from typing import Annotated

from schemas.record import record
from schemas.scores import Example, RunAggregates


class Verdict:
    """What a deploy may do: go, stop, or ask a person."""

    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"


@record
class Reason:
    """One reason for a verdict."""

    code: Annotated[str, "Machine-readable, such as safety_regression."]
    effect: Annotated[str, "fail, inconclusive or note."]
    message: Annotated[str, "The reason in a sentence."]
    scenario_id: Annotated[str | None, "The scenario it is about, if one."] = None
    category: Annotated[str | None, "The category it is about, if one."] = None
    dimension: Annotated[str | None, "The dimension it is about, if one."] = None


@record
class Stat:
    """One side of a comparison."""

    sessions: Annotated[int, "Sessions that count."]
    value: Annotated[float, "Pass rate for gates, mean otherwise."]
    low: Annotated[float | None, "Lower end of the confidence interval, where one is made."] = None
    high: Annotated[float | None, "Upper end of the confidence interval, where one is made."] = None
    unscored: Annotated[int, "Sessions without a score; they count as not passed."] = 0


@record
class DiffEntry:
    """How one dimension of one scenario compares."""

    scenario_id: Annotated[str, "The scenario."]
    category: Annotated[str, "Its category."]
    dimension: Annotated[str, "The dimension."]
    kind: Annotated[str, "gate, quality or measure."]
    change: Annotated[str, "regressed, improved, unchanged, new, missing or incomparable."]
    hard: Annotated[bool, "A regression that no setting can soften."] = False
    baseline: Annotated[Stat | None, "The baseline's side; null when new."] = None
    candidate: Annotated[Stat | None, "The candidate's side; null when missing."] = None
    tolerance: Annotated[float, "How much worse would have been accepted."] = 0.0
    p_value: Annotated[float | None, "Of the comparison's test, where one is made."] = None
    effect_size: Annotated[float | None, "Of the comparison, where one is computed."] = None
    method: Annotated[str, "How the two were compared."] = ""
    examples: Annotated[tuple[Example, ...], "Sessions of the candidate that show it."] = ()


@record
class GateStatus:
    """PASS, FAIL or INCONCLUSIVE, with every reason. Deploys wait for this."""

    run_id: Annotated[str, "The run, which is also the record's key."]
    verdict: Annotated[str, "PASS, FAIL or INCONCLUSIVE."]
    reasons: Annotated[tuple[Reason, ...], "Why; failing reasons first."] = ()
    diff: Annotated[tuple[DiffEntry, ...], "All that changed against the baseline."] = ()
    suite: Annotated[str, "The suite's name."] = ""
    suite_hash: Annotated[str, "The suite's content hash."] = ""
    suite_version: Annotated[str, "The suite's version."] = ""
    agent_id: Annotated[str, "The registered agent."] = ""
    agent_name: Annotated[str, "The agent's name."] = ""
    agent_fingerprint: Annotated[str, "Hash of what was registered for this build."] = ""
    baseline_run_id: Annotated[str | None, "The run that the baseline was taken from."] = None
    sessions: Annotated[int, "Sessions planned."] = 0
    passed: Annotated[int, "Sessions that passed."] = 0
    incomplete_categories: Annotated[tuple[str, ...], "Categories with under five scenarios."] = ()
    policy: Annotated[str, "Name and version of the comparison's rules."] = ""
    at_ms: Annotated[int, "When it was decided."] = 0


@record
class BaselineAccepted:
    """Somebody accepted a run as what later ones are compared with, and says why."""

    name: Annotated[str, "Suite name, slash, agent name; also the record's key."]
    run_id: Annotated[str, "The accepted run."]
    author: Annotated[str, "Who accepted it."]
    reason: Annotated[str, "Why."]
    accepted_at_ms: Annotated[int, "When."]
    replaces_run_id: Annotated[str | None, "The run that was the baseline before."] = None
    diff: Annotated[tuple[DiffEntry, ...], "What changed against the baseline before."] = ()
    aggregates: Annotated[RunAggregates, "The accepted figures."]
