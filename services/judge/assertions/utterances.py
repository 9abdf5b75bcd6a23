"""`bot_uttered` and `bot_did_not_utter`: names, texts and buttons of what the agent said.

Texts are those of agent turns, which every agent has, and of reported `bot_uttered` events. Names
and buttons are only known where the agent reports them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas.assertions import Button
from schemas.assertions import Utterance as Wanted
from schemas.patterns import PatternTooCostly, found
from services.judge.assertions import facts as f
from services.judge.assertions.facts import Facts, Utterance, quoted
from services.judge.assertions.outcome import (
    Outcome,
    absent,
    all_of,
    fails,
    holds,
    missing,
    not_applicable,
    unscored,
)
from services.judge.outcomes import ABSENT, same

_KEYS = ("utter_name", "text_matches", "buttons")
_FAMILIES = {"utter_name": f.NAMED, "buttons": f.BUTTONS}


def uttered(wanted: Wanted, facts: Facts) -> Outcome:
    """One utterance has all that is asked for."""
    keys = _given(wanted)
    try:
        fits = {k: [one for one in facts.utterances if _has(one, wanted, k)] for k in keys}
    except PatternTooCostly as error:
        return unscored(f"text_matches cannot be searched for: {error}")
    fitting = [one for one in facts.utterances if all(one in fits[key] for key in keys)]
    words = " and ".join(_told(wanted, key) for key in keys)
    if fitting:
        return holds(f"the agent uttered {words}", _steps(fitting))
    # What no utterance has is missing, whatever else could not be seen.
    known = [key for key in keys if not fits[key] and not _blind(key, facts)]
    blind = "" if known else next((why for key in keys if (why := _blind(key, facts))), "")
    return missing(f"the agent did not utter {words}", blind)


def not_uttered(wanted: Wanted, facts: Facts) -> Outcome:
    """No utterance has any of what is given."""
    return all_of(_without(wanted, key, facts) for key in _given(wanted))


def _without(wanted: Wanted, key: str, facts: Facts) -> Outcome:
    words = _told(wanted, key)
    try:
        fitting = [one for one in facts.utterances if _has(one, wanted, key)]
    except PatternTooCostly as error:
        return unscored(f"text_matches cannot be searched for: {error}")
    if fitting:
        return fails(f"the agent uttered {words}", _steps(fitting))
    if not facts.utterances:
        return not_applicable("the agent said nothing in this session")
    return absent(f"the agent did not utter {words}", _blind(key, facts))


def _blind(key: str, facts: Facts) -> str:
    return facts.blind_to(_FAMILIES[key]) if key in _FAMILIES else ""


def _given(wanted: Wanted) -> list[str]:
    return [key for key in _KEYS if getattr(wanted, key) is not None]


def _has(one: Utterance, wanted: Wanted, key: str) -> bool:
    if key == "utter_name":
        return one.utter_name == wanted.utter_name
    if key == "buttons":
        return _same_buttons(wanted.buttons or (), one.buttons)
    return one.text is not None and found(wanted.text_matches or "", one.text)


def _same_buttons(wanted: tuple[Button, ...], shown: tuple[Mapping[str, Any], ...]) -> bool:
    """As many, in the same order, each with the keys that are asked for."""
    return len(wanted) == len(shown) and all(
        all(same(there.get(key, ABSENT), value) for key, value in button.keys.items())
        for button, there in zip(wanted, shown, strict=True)
    )


def _told(wanted: Wanted, key: str) -> str:
    if key == "utter_name":
        return f"response {quoted(wanted.utter_name)}"
    if key == "buttons":
        return f"buttons {quoted([button.keys for button in wanted.buttons or ()])}"
    return f"text {quoted(wanted.text_matches)}"


def _steps(fitting: list[Utterance]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one.step for one in fitting))
