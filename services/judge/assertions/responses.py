"""`generative_response_is_relevant` and `generative_response_is_grounded`, scored by a model.

Meant are the reported utterances with the source, and the response's name if one is given. Each of
them must reach the threshold, judged by itself: a response, what the user said in that turn, or the
material it was made from, and nothing else of the conversation.
"""

from __future__ import annotations

import asyncio

from schemas.assertions import Grounded, Relevant
from schemas.patterns import clean
from services.judge.assertions import facts as f
from services.judge.assertions.facts import Facts, Utterance, quoted
from services.judge.assertions.outcome import (
    Outcome,
    Verdict,
    all_of,
    missing,
    unscored,
)
from services.judge.assertions.rating import MAX_CHARS, Question, ResponseJudge

MAX_RESPONSES = 50


async def rate(body: Relevant, facts: Facts, judge: ResponseJudge | None, no_judge: str) -> Outcome:
    """Whether every response that is meant reaches the threshold; `no_judge` says why nobody can
    tell where there is no model.
    """
    named = "" if body.utter_name is None else f" named {quoted(body.utter_name)}"
    meant = [
        one
        for one in facts.utterances
        if one.utter_source == body.utter_source and body.utter_name in (None, one.utter_name)
    ]
    if not meant:
        blind = facts.blind_to(f.SOURCED) or (facts.blind_to(f.NAMED) if named else "")
        words = f"there is no response{named} from {quoted(body.utter_source)}"
        return missing(words, blind)
    steps = [one.step for one in meant]
    if judge is None:
        return unscored(no_judge, steps)
    if len(meant) > MAX_RESPONSES:
        return unscored(f"{len(meant)} responses are meant, {MAX_RESPONSES} are judged", steps)
    return all_of(await asyncio.gather(*(_one(body, one, judge) for one in meant)))


async def _one(body: Relevant, one: Utterance, judge: ResponseJudge) -> Outcome:
    steps = (one.step,)
    if not one.text or not one.text.strip():
        return unscored(f"the response at {one.step} has no text", steps)
    question = Question(clean(one.text), user=one.heard)
    if isinstance(body, Grounded):
        source = clean(body.ground_truth or one.source)
        if not source.strip():
            words = f"there is no ground_truth for the response at {one.step}"
            return unscored(f"{words}, and the agent reports no source of it", steps)
        question = Question(clean(one.text), source=source)
    elif not one.heard.strip():
        return unscored(f"the response at {one.step} answers no message of the user", steps)
    if question.size > MAX_CHARS:
        words = f"the material on {one.step} has {question.size} characters, {MAX_CHARS} fit"
        return unscored(words, steps)
    rating = await judge.rate(question)
    if rating.score is None:
        return unscored(f"{one.step}: {rating.rationale}", steps)
    model = judge.model
    if rating.answered_by and rating.answered_by != model:
        model += f" ({rating.answered_by})"
    enough = rating.score >= body.threshold
    sign = "reaches" if enough else "is below"
    words = (
        f"{one.step} scores {rating.score:.2f}, which {sign} {body.threshold:g}: {rating.rationale}"
    )
    return Outcome(Verdict.HOLDS if enough else Verdict.FAILS, words, steps, model)
