"""What simulators and judge are pinned to: a baseline is comparable only under equal pins (V10).

Whoever changes how a part behaves raises its version here; the part itself and the coordinator,
who records the pins of a run, both take it from here.
"""

from __future__ import annotations

AGENDA = "agenda/2"
WORLD = "world/1"
JUDGE = "judge/2"


def model_pin(model: str, temperature: float) -> str:
    """The pin of a model that plays a part."""
    return f"llm:{model}@temperature={temperature:g}"


def user_pin(mode: str, model: str, temperature: float) -> str:
    """The pin of the user simulator: agenda, model, or the agenda with a model for the rest."""
    if not model:
        return AGENDA
    pinned = model_pin(model, temperature)
    return pinned if mode == "llm" else f"{AGENDA}, {pinned}"


def judge_pin(model: str) -> str:
    """The pin of the judge: its evaluators' version, and its model if it has one."""
    return f"{JUDGE} {model}" if model else JUDGE
