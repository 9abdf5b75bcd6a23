"""Raw records into events and scores; what cannot be read goes to a dead-letter output."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import apache_beam as beam
from apache_beam.metrics.metric import Metrics

from pipelines.rows import Logged
from pipelines.sources import Raw
from schemas.codec import Codec
from schemas.errors import WindtunnelSchemaError
from schemas.registry import DeadLetter
from schemas.topics import BY_FULL_NAME

DEAD_LETTERS = "dead_letters"

#: Makes the codec on the worker; a plain function or a partial of one.
MakeCodec = Callable[[], Codec]


class Decode(beam.DoFn):
    """(session id, Raw) to (session id, Logged); DeadLetter on the output `dead_letters`.

    The session is the record's own, not its key's. Records of another run are dropped.
    """

    def __init__(self, make_codec: MakeCodec, run_id: str) -> None:
        self._make_codec = make_codec
        self._run_id = run_id
        self._codec: Codec | None = None
        self._unreadable = Metrics.counter("windtunnel", "dead_letters")

    def setup(self) -> None:
        self._codec = self._make_codec()

    def process(self, element: Raw) -> Iterable[Any]:
        assert self._codec is not None
        topic = BY_FULL_NAME[element.topic]
        try:
            record: Any = self._codec.decode(topic.record, element.value)
        except WindtunnelSchemaError as error:
            self._unreadable.inc()
            yield beam.pvalue.TaggedOutput(DEAD_LETTERS, _letter(element, str(error)))
            return
        if record.run_id == self._run_id:
            yield record.session_id, Logged(element.partition, element.offset, record)


def _letter(raw: Raw, error: str) -> DeadLetter:
    # The broker's timestamp and not a clock, so that a letter found twice is the same letter.
    return DeadLetter(
        topic=raw.topic,
        partition=raw.partition,
        offset=raw.offset,
        key=raw.key.encode(),
        value=raw.value,
        service="pipelines",
        error=error,
        at_ms=raw.timestamp_ms,
    )
