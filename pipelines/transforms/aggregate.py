"""A run's scores into its RunAggregates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam

from pipelines.aggregation import (
    ScenarioAccumulator,
    finish,
    is_planned,
    last_attempt,
    trial_of,
)
from schemas.runs import RunStatus
from schemas.scores import SessionScored


class CombineScenario(beam.CombineFn):
    """Sessions of one scenario into its accumulator, every dimension in it.

    Commutative and associative to the last bit (see pipelines.statistics), so a runner may combine
    in any bundles and order. Stops short of the result: that needs the run's plan.
    """

    def __init__(self) -> None:
        """Nothing to set up; Beam's own has no types."""

    def create_accumulator(self) -> ScenarioAccumulator:
        return ScenarioAccumulator()

    def add_input(
        self, mutable_accumulator: ScenarioAccumulator, element: SessionScored
    ) -> ScenarioAccumulator:
        mutable_accumulator.add(element)
        return mutable_accumulator

    def merge_accumulators(
        self, accumulators: Iterable[ScenarioAccumulator]
    ) -> ScenarioAccumulator:
        merged = ScenarioAccumulator()
        for accumulator in accumulators:
            merged.merge(accumulator)
        return merged

    def extract_output(self, accumulator: ScenarioAccumulator) -> ScenarioAccumulator:
        return accumulator


class AggregateRun(beam.PTransform[Any, Any]):
    """SessionScored, each session once, to the run's one RunAggregates.

    There is exactly one output, also when nothing was scored at all: then everything is lost.
    """

    def __init__(self, status: RunStatus) -> None:
        super().__init__()
        self._status = status

    def expand(self, scores: Any) -> Any:
        status = self._status
        scenarios = (
            scores
            | "planned" >> beam.Filter(is_planned, status)
            | "by trial" >> beam.WithKeys(trial_of)
            | "last attempts" >> beam.CombinePerKey(last_attempt)
            | "that count" >> beam.Values()
            | "by scenario" >> beam.Map(lambda score: (score.scenario_id, score))
            | "combine" >> beam.CombinePerKey(CombineScenario())
        )
        return (
            scores.pipeline
            | "run" >> beam.Create([status])
            | "finish" >> beam.FlatMap(_finish, beam.pvalue.AsDict(scenarios))
        )


def _finish(status: RunStatus, scenarios: dict[str, ScenarioAccumulator]) -> Iterator[Any]:
    yield finish(scenarios, status)
