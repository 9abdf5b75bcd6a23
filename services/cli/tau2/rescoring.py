"""Recorded results scored again: what was recorded is called again on the domain's databases.

Two formats are read: tau2's `Results`, and the list of sessions that tau-bench, its predecessor,
writes. A recorded call that now answers differently means that the recording cannot be reproduced
with this package, so its session is unscored, as tau2's own evaluator refuses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from schemas.pass_hat_k import pass_hat_k
from services.cli.errors import CliError
from services.cli.files import read_text
from services.cli.tau2.recordings import Recording, of_tau2, of_tau_bench
from services.runtime.tau2.domains import Domain, domain
from services.runtime.tau2.reward import Done, NotRewardable, reward

_MAX_FILE_BYTES = 2 * 1024**3
_SOLVED = 1 - 1e-6


@dataclass(frozen=True, slots=True)
class Scored:
    """One recorded session. `reward` is None where it cannot be scored, for the `reason`."""

    task: str
    trial: int
    recorded: float | None
    reward: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class Rescored:
    """All sessions of a file. `pass_hat_k` is over the rewards found here, by task, averaged;
    empty when a session is unscored or the tasks have no trial in common."""

    domain: str
    sessions: tuple[Scored, ...]
    pass_hat_k: tuple[float, ...]

    @property
    def unscored(self) -> list[Scored]:
        return [one for one in self.sessions if one.reward is None]

    @property
    def differing(self) -> list[Scored]:
        scored = [one for one in self.sessions if one.reward is not None]
        return [one for one in scored if one.recorded is not None and one.reward != one.recorded]

    @property
    def agreeing(self) -> int:
        return sum(one.reward is not None and one.reward == one.recorded for one in self.sessions)

    def as_json(self) -> dict[str, Any]:
        """What the command tells with `--json`."""
        return {
            "domain": self.domain,
            "agreeing": self.agreeing,
            "differing": len(self.differing),
            "unscored": len(self.unscored),
            "pass_hat_k": list(self.pass_hat_k),
            "sessions": [asdict(one) for one in self.sessions],
        }


def rescore_file(path: Path, domain_name: str = "") -> Rescored:
    """Score a file of results.

    Args:
        domain_name: the domain, where the file does not say it.

    Raises:
        Tau2Missing: the package is not installed.
        CliError: the file is of neither format, or of a domain that is not known here.
    """
    try:
        document = orjson.loads(read_text(path, _MAX_FILE_BYTES))
    except orjson.JSONDecodeError as error:
        raise CliError(f"{path}: not JSON: {error}") from None
    try:
        read = of_tau2 if isinstance(document, dict) else of_tau_bench
        name, recordings = read(document, domain_name)
        return rescored(domain(name), recordings)
    except ValueError as error:
        raise CliError(f"{path}: {error}") from None


def rescored(of: Domain, recordings: Sequence[Recording]) -> Rescored:
    """Score recordings of a domain."""
    sessions = tuple(scored(of, recording) for recording in recordings)
    return Rescored(of.name, sessions, mean_pass_hat_k(sessions))


def scored(of: Domain, recording: Recording) -> Scored:
    """Score one recording."""
    task, trial, recorded = recording.task, recording.trial, recording.reward
    try:
        found = reward(of, task, _done(of, recording))
    except (NotRewardable, ValueError) as error:
        return Scored(task.id, trial, recorded, None, str(error))
    failing = [check.words for check in found.checks if not check.holds]
    return Scored(task.id, trial, recorded, found.value, "; ".join(failing[:3]))


def mean_pass_hat_k(sessions: Sequence[Scored]) -> tuple[float, ...]:
    """pass^k for k = 1, 2, ... up to the fewest trials of a task, the mean over the tasks."""
    tasks: dict[str, list[bool]] = {}
    for one in sessions:
        if one.reward is None:
            return ()
        tasks.setdefault(one.task, []).append(one.reward >= _SOLVED)
    by_task = [pass_hat_k(sum(solved), len(solved)) for solved in tasks.values()]
    return tuple(sum(column) / len(column) for column in zip(*by_task, strict=False))


def _done(of: Domain, recording: Recording) -> Done:
    if not recording.stopped:
        return Done(None, (), (), False)
    state = of.start_of(recording.task)
    for call in recording.calls:
        answer, state = of.call(state, call.tool, call.arguments, call.requestor)
        if not call.answered_as(answer):
            raise NotRewardable(
                f"{call.tool} answered {_short(call.answer)} and now {_short(answer)}"
            )
    made = [(call.tool, call.arguments) for call in recording.calls]
    return Done(state, made, recording.said, True)


def _short(answer: Any) -> str:
    text = answer if isinstance(answer, str) else orjson.dumps(answer).decode()
    return repr(text if len(text) <= 80 else text[:79] + "…")
