"""`windtunnel judge sample`: sessions of a run as a file that people put labels into.

What the judge made of a session is not in the file: who labels should not know it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from schemas.errors import InvalidDocument
from schemas.loader import scenario_of
from schemas.registry import Suite, SuiteScenario
from schemas.scenario import Scenario
from schemas.scores import Dimension
from services.cli.errors import CliError
from services.cli.files import written_whole
from services.cli.report.reading import JsonObject, RunReader

_SESSION = "session"
_LABELLED = {*Dimension.GATES, *Dimension.QUALITY} - {Dimension.CRITERIA}


def write_sample(
    reader: RunReader,
    suites: Callable[[str], Suite | None],
    run_id: str,
    path: Path,
    *,
    sessions: int,
    seed: int,
) -> int:
    """Write sessions of a run, drawn by `seed`, as a labelled file whose labels are null; how many.

    `suites` gives the published suite with a content hash.

    Raises:
        CliError: the store has no run or no ended session of it, or its suite cannot be had.
        StoreError: the store fails.
        OSError: the file cannot be written.
    """
    suite_hash = reader.run(run_id)["suite_hash"]
    drawn = reader.sample(run_id, sessions, seed)
    if not drawn:
        raise CliError(f"the store has no session of run {run_id} that has ended")
    suite = suites(suite_hash)
    if suite is None:
        raise CliError(f"suite {suite_hash} of run {run_id} is not on the suites topic any more")
    scenarios = {entry.scenario_id: entry for entry in suite.scenarios}
    details = reader.details(run_id, [session["session_id"] for session in drawn])
    with written_whole(path) as file:
        for session, (name, detail) in zip(drawn, details, strict=True):
            entry = scenarios[session["scenario_id"]]
            file.write(json.dumps(_line(run_id, name, entry, detail)) + "\n")
    return len(drawn)


def _line(run_id: str, session_id: str, entry: SuiteScenario, detail: JsonObject) -> JsonObject:
    try:
        scenario = scenario_of(entry)
    except InvalidDocument as error:
        raise CliError(f"scenario {entry.scenario_id} cannot be read: {error}") from None
    return {
        "id": session_id,
        "scenario": json.loads(entry.document),
        "events": list(_events(run_id, session_id, detail)),
        "labels": dict.fromkeys(_to_label(scenario, detail)),
    }


def _events(run_id: str, session_id: str, detail: JsonObject) -> Iterator[JsonObject]:
    for event in detail["events"]:
        yield {
            "event_id": f"{session_id}:{event['step']}",
            "session_id": session_id,
            "run_id": run_id,
            "kind": event["kind"],
            "conversation": event["conversation"],
            "turn": event["turn"],
            "at_ms": event["at_ms"],
            event["kind"]: event["body"],
        }


def _to_label(scenario: Scenario, detail: JsonObject) -> Iterator[str]:
    """What of this session a person can judge: what the judge looked at, where it arose."""
    yield _SESSION
    for score in detail["scores"]:
        if score["dimension"] in _LABELLED and score["status"] != "not_applicable":
            yield score["dimension"]
    for number in range(1, len(scenario.goals.criteria) + 1):
        yield f"{Dimension.CRITERIA}.{number}"
