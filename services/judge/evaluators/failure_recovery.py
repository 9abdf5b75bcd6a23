"""Failure recovery: what the agent made of every failure that was injected.

A failure is a call whose answer an injection took away (`outcomes.FAILING`). The agent recovers

- **by retry**: a later call of the same tool with the same arguments succeeds. After an injected
  schema mismatch, which tells the agent that its arguments are wrong, the same tool suffices;
- **by informing**: a later answer tells the user, in words that match `recovery.says` or, where
  the scenario gives none, common phrases such as "temporarily unavailable" or "try again later".
  An answer that also claims success does not count, unless a call that changed the world
  succeeded in the same turn, which the claim may be about. Saying that it worked is not telling
  the user that it did not.

Which of the two is asked for is `recovery.by`. The value is the fraction of failures recovered
from; all must be to pass. Not applicable where nothing was injected.
"""

from __future__ import annotations

import re

from schemas.briefs import JudgeBrief
from schemas.model import Pattern
from schemas.scores import Dimension, DimensionScore
from services.judge.evaluators.scoring import Finding, count, gate_of, not_applicable
from services.judge.outcomes import call_key, failed_by_injection, succeeded
from services.judge.trajectory import AgentStep, Call, Trajectory

NAME = "failure_recovery/1"

_SYSTEM = r"(systems?|services?|tools?|servers?|backends?|providers?|apis?|lookups?|databases?)"
INFORMING: tuple[Pattern, ...] = tuple(
    Pattern(text)
    for text in (
        r"\b(temporarily|currently|momentarily) (unavailable|down|offline|unreachable|out of)\b",
        rf"\b{_SYSTEM}\b.{{0,40}}\b(is|are|was|were|seems?|appears?|keeps?)\b.{{0,20}}"
        r"\b(down|unavailable|offline|unreachable|failing|not (available|working))\b",
        r"\b(is|are|was|were)(n't| not) (responding|reachable|working)\b",
        r"\b(cannot|can't|could not|couldn't|unable to|not able to) (reach|connect to)\b",
        r"\b(try|check|come|call|contact us)( back| again)+( \w+){0,3} "
        r"(later|shortly|soon|tomorrow|in an? (bit|moment|while|hour|few))",
        r"\btry( it| this| that)? again (later|shortly|soon|in an? (bit|moment|while|hour|few))",
        r"\b(technical|system|temporary) (issue|problem|difficult|error|outage|failure|fault)",
        r"\b(cannot|can't|could not|couldn't|unable to|not able to)\b.{0,80}"
        r"\b(right now|at the moment|at this time|just now|for the moment)\b",
        r"\btim(ed|ing) ?out\b",
    )
)

_CLAIM = re.compile(
    r"\b(has|have) (now |just |already )?been (successfully )?"
    r"(processed|issued|completed|refunded|cancell?ed|updated|changed|booked|placed|sent|made)\b"
    r"|\b(i've|i have) (now |just |successfully )*"
    r"(processed|issued|completed|refunded|cancell?ed|updated|changed|booked|placed)\b"
    r"|\bwent through\b|\bsuccessfully \w+ed\b"
    r"|\b(you're|you are|it's|it is|that's) all (set|done)\b",
    re.IGNORECASE,
)
_HEDGE = re.compile(
    r"n't\b|\b(not|no|nothing|never|unable|failed|once|when|until|after|if|will|whether)\b",
    re.IGNORECASE,
)
_CLAUSES = re.compile(r"[.!?;:,\n]+|\bbut\b|\bhowever\b", re.IGNORECASE)


def evaluate(trajectory: Trajectory, brief: JudgeBrief) -> DimensionScore:
    failures = [call for call in trajectory.calls if failed_by_injection(call)]
    if not failures:
        return not_applicable(Dimension.RECOVERY, NAME, "no failure was injected")
    findings = [_recovery(trajectory, brief, call) for call in failures]
    reason = f"recovered from {count(len(failures), 'injected failure')}: " + "; ".join(
        dict.fromkeys(finding.words for finding in findings)
    )
    return gate_of(Dimension.RECOVERY, NAME, findings, when_all_hold=reason)


def _recovery(trajectory: Trajectory, brief: JudgeBrief, failed: Call) -> Finding:
    by = brief.recovery.by
    retry = _retry(trajectory, failed) if by != "inform" else None
    if retry:
        return Finding(
            True, f"{failed.tool} was called again and worked", (failed.step, retry.step)
        )
    told, claimed = _telling(trajectory, brief, failed) if by != "retry" else (None, None)
    if told:
        return Finding(True, f"the user was told about {failed.tool}", (failed.step, told.step))
    kind = failed.body.injection.kind if failed.body.injection else "failure"
    missing = {
        "retry": "no later call of it succeeded",
        "inform": "the user was not told",
        "either": "no later call of it succeeded, and the user was not told",
    }[by]
    if claimed:
        missing += f" ({claimed.step} claims success)"
    steps = (failed.step, claimed.step) if claimed else (failed.step,)
    return Finding(False, f"after the {kind} of {failed.tool} ({failed.step}) {missing}", steps)


def _retry(trajectory: Trajectory, failed: Call) -> Call | None:
    any_arguments = failed.body.injection and failed.body.injection.kind == "schema_mismatch"
    for call in trajectory.calls:
        if call.position <= failed.position or not succeeded(call):
            continue
        if call_key(call) == call_key(failed) or (any_arguments and call.tool == failed.tool):
            return call
    return None


def _telling(
    trajectory: Trajectory, brief: JudgeBrief, failed: Call
) -> tuple[AgentStep | None, AgentStep | None]:
    """The first later answer that tells the user, and the first that falsely claims success."""
    patterns = brief.recovery.says or INFORMING
    claimed = None
    for turn in trajectory.agent_turns:
        if turn.position <= failed.position or not turn.answered:
            continue
        if claims_success(turn.body.final_response) and not _backed(trajectory, turn):
            claimed = claimed or turn
        elif any(pattern.found_in(turn.body.final_response) for pattern in patterns):
            return turn, claimed
    return None, claimed


def claims_success(text: str) -> bool:
    """Whether some clause says that something was done, without a negation or a condition."""
    return any(
        _CLAIM.search(clause) and not _HEDGE.search(clause) for clause in _CLAUSES.split(text)
    )


def _backed(trajectory: Trajectory, turn: AgentStep) -> bool:
    return any(
        call.turn == turn.turn and call.touched and succeeded(call) for call in trajectory.calls
    )
