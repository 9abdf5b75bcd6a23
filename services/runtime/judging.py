"""How the judge asks its model: settings that the judge and the dispatcher share.

The judge acts by them; the dispatcher records them as a pin of every run, since scores that came
about in another way cannot be compared.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field, field_validator

from schemas.pins import judge_pin
from schemas.scores import Dimension


class JudgeModelSettings(BaseModel):
    """To be mixed into the settings of a service."""

    judge_model: str = Field(default="", description="As litellm names it; empty for none.")
    judge_model_temperature: float = Field(
        default=0, ge=0, le=2, description="Of the samples of a criterion."
    )
    judge_samples: int = Field(
        default=1, ge=1, le=25, description="Verdicts on each criterion; an odd number."
    )
    judge_agreement: float = Field(
        default=0.66, gt=0.5, le=1, description="Share of the samples that must agree on a verdict."
    )
    judge_batch: bool = Field(
        default=False, description="Ask for all criteria of a session in one call."
    )
    judge_quality: tuple[str, ...] = Field(
        default=Dimension.QUALITY,
        description="Quality metrics that the model rates, comma-separated; empty for none.",
    )

    @field_validator("judge_samples")
    @classmethod
    def _odd(cls, value: int) -> int:
        if value % 2 == 0:
            raise ValueError(f"{value} samples can end in a tie; take {value - 1} or {value + 1}")
        return value

    @field_validator("judge_quality", mode="before")
    @classmethod
    def _separated(cls, value: Any) -> Any:
        """`tone,empathy`, as an environment variable has to write it."""
        if isinstance(value, str):
            return tuple(name.strip() for name in value.split(",") if name.strip())
        return value

    @field_validator("judge_quality")
    @classmethod
    def _known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := sorted(set(value) - set(Dimension.QUALITY)):
            raise ValueError(
                f"unknown {', '.join(unknown)}; expected some of {', '.join(Dimension.QUALITY)}"
            )
        return tuple(dict.fromkeys(value))

    def judge_pin(self) -> str:
        """What a baseline must share with a candidate to be comparable (V10)."""
        return judge_pin(
            self.judge_model,
            temperature=self.judge_model_temperature,
            samples=self.judge_samples,
            agreement=self.judge_agreement,
            batch=self.judge_batch,
            quality=self.judge_quality,
        )
