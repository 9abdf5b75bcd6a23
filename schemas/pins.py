"""What simulators and judge are pinned to: a baseline is comparable only under equal pins (V10).

Whoever changes how a part behaves raises its version here; the part itself and the coordinator,
who records the pins of a run, both take it from here.
"""

from __future__ import annotations

AGENDA = "agenda/3"
REPLAY = "replay/1"
WORLD = "world/2"
JUDGE = "judge/3"


def model_pin(model: str, temperature: float) -> str:
    """The pin of a model that plays a part."""
    return f"llm:{model}@temperature={temperature:g}"


def user_pin(mode: str, model: str, temperature: float) -> str:
    """The pin of the user simulator: agenda, model, or the agenda with a model for the rest; and
    that of recordings, which any of them carries on."""
    if not model:
        return f"{AGENDA}, {REPLAY}"
    pinned = model_pin(model, temperature)
    return f"{pinned}, {REPLAY}" if mode == "llm" else f"{AGENDA}, {pinned}, {REPLAY}"


def world_pin(model: str, temperature: float) -> str:
    """The pin of the tool simulator: the worlds', and that of the model that plays tools if there
    is one."""
    return f"{WORLD}, {model_pin(model, temperature)}" if model else WORLD


def judge_pin(
    model: str = "",
    *,
    temperature: float = 0,
    samples: int = 1,
    agreement: float = 0,
    batch: bool = False,
    quality: tuple[str, ...] = (),
) -> str:
    """The pin of the judge: its evaluators' version, and its model and how that is asked if it has
    one. `agreement` matters only where there are several samples.
    """
    if not model:
        return JUDGE
    parts = [f"{JUDGE} {model_pin(model, temperature)}"]
    if samples > 1:
        parts.append(f"{samples} samples of which {agreement:g} agree")
    if batch:
        parts.append("batched")
    if quality:
        parts.append(f"quality {'+'.join(quality)}")
    return ", ".join(parts)
