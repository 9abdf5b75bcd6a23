"""Whether what a user says is said by a user: not by the agent, nor by whoever plays the user."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from schemas.briefs import UserBrief
from services.user_simulator.simulator import AgentSaid, History, UserSaid

LEAK_WORDS = 6
"""So many of its instructions' words in a row are no coincidence."""
ECHO_WORDS = 6
"""So many words, the same as the agent's last answer, are no quotation."""

_AI = r"(?:ai|artificial intelligence|language model|virtual assistant|chatbot)"
_THEIRS = r"(?:order|account|booking|customer|reservation|card|postcode|date of birth)"
"""What only an agent asks for."""
_SPEAKS_AS_AGENT = re.compile(
    r"^\s*[*_\"]*(?:assistant|agent|ai|system|support|bot|customer service)[*_\"]*\s*:"
    r"|\b(?:how|what) (?:can|may) i (?:help|assist|do for) you\b"
    r"|\banything else (?:that )?i can (?:help|assist|do for)\b"
    rf"|\bas an? {_AI}\b[^.?!]{{0,20}}, i\b|\bi(?:'m| am) (?:just |only )?an? {_AI}\b"
    r"|\bthank you for (?:contacting|reaching out to|choosing) us\b"
    r"|\bi(?:'ve| have) (?:processed|issued|initiated|cancelled|refunded|updated) your \w+"
    r"|\bi(?:'d| would| will|'ll)?(?: be| am|'m) (?:happy|glad) to (?:help|assist) you\b"
    rf"|\blet me (?:check|look up|pull up|look into) (?:that|this|your {_THEIRS}) for you\b"
    rf"|\bplease (?:provide|give|send|tell|share)(?: me)?(?: with)? your {_THEIRS}\b"
    rf"|\b(?:may|can|could) i (?:please )?have your {_THEIRS}\b"
    r"|\bour (?:records|policy|system) (?:show|state)s?\b"
    r"|\bi understand your (?:frustration|concern)\b",
    re.IGNORECASE | re.MULTILINE,
)
_OUT_OF_CHARACTER = re.compile(
    r"\bmy (?:system prompt|persona|instructions|brief)\b|\bthe user brief\b"
    r"|\bsimulat(?:ed|ing|ion|or)\b|\brole-?play(?:ing)?\b|\bstay(?:ing)? in character\b"
    r"|\bi was (?:told|instructed) to (?:play|pretend|act)\b"
    r"|\bi (?:should|will|must|need to|am (?:supposed|going) to) (?:now )?(?:pretend|play|act as)\b"
    r"|\bas (?:the|this|a) (?:user|customer), i\b"
    r"|\bmy (?:next|first) (?:message|reply) (?:should|will)\b"
    r"|\b(?:the|my) goal (?:has been|is|was) (?:met|reached|achieved)\b"
    r"|^\s*[*_]*(?:thought|thoughts|thinking|reasoning|analysis|chain of thought)[*_]*\s*:"
    r"|^\s*[*_]*(?:user|customer)[*_]*\s*:"
    r"|\b(?:done_when|conversation_over|goal_met|give_up|gave_up)\b|\"status\"\s*:"
    r"|</?(?:think(?:ing)?|reasoning|scratchpad|reflection)>|<\|[\w]+\|>",
    re.IGNORECASE | re.MULTILINE,
)
_INSTRUCTIVE = frozenset({"you", "your", "user", "customer", "caller", "client"})
_QUOTED = re.compile(r"\"[^\"\n]*\"|\u201c[^\u201d\n]*\u201d|(?<!\w)'[^'\n]*'(?!\w)")


def out_of_character(
    brief: UserBrief, history: History, own: str, authored: Iterable[str]
) -> str | None:
    """How a text gives away that no user says it; None if it does not.

    Args:
        own: What is said, without the parts that the scenario's author wrote.
        authored: Those parts: what the matter itself is about.
    """
    if match := _SPEAKS_AS_AGENT.search(own.replace("\u2019", "'")):
        return f"speaks as the agent: {match[0].strip()!r}"
    heard = " ".join(entry.text for entry in history if isinstance(entry, AgentSaid))
    matter = " ".join((heard, *authored)).casefold()
    for match in _OUT_OF_CHARACTER.finditer(own.replace("\u2019", "'")):
        if match[0].strip().casefold() not in matter:
            return f"steps out of character: {match[0].strip()!r}"
    return _echo(history, own) or _leak(brief, own)


def _echo(history: History, own: str) -> str | None:
    """The agent's own answer is said back to it as if it were the user's."""
    last = history[-1] if history else None
    if not isinstance(last, AgentSaid):
        return None
    said = words(own)
    if len(said.split()) < ECHO_WORDS or said != words(last.text):
        return None
    # An agent that echoes is not the user's fault.
    if any(isinstance(entry, UserSaid) and words(entry.text) == said for entry in history):
        return None
    return "speaks as the agent: says its last answer back to it"


def _leak(brief: UserBrief, own: str) -> str | None:
    said = f" {words(own)} "
    if any(f" {run} " in said for run in _instructions(brief)):
        return "says its instructions aloud"
    for conversation in brief.conversations:
        for goal in conversation.goals:
            for pattern in goal.done_when:
                if re.search(r"[\\*+?|(\[{^$]", pattern) and pattern.casefold() in own.casefold():
                    return "says aloud the pattern that it waits for"
    return None


def _instructions(brief: UserBrief) -> Iterator[str]:
    """Runs of words that direct the user. What a narrative quotes, it lends to be said."""
    for instruction in (brief.narrative, brief.persona.description):
        for sentence in re.split(r"(?<=[.!?])\s+|\n+", _QUOTED.sub(" ", instruction)):
            run = words(sentence).split()
            for start in range(len(run) - LEAK_WORDS + 1):
                part = run[start : start + LEAK_WORDS]
                if _INSTRUCTIVE.intersection(part):
                    yield " ".join(part)


def words(text: str) -> str:
    """The words alone, so that case and punctuation make no difference."""
    return " ".join(re.findall(r"\w+", text.casefold()))
