"""D02: everything on a topic is Avro, framed so that any reader finds the writer's schema."""

from __future__ import annotations

import io
import json
from contextlib import suppress

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.codec import RECORDS, Codec, ConfluentFraming, schema_fingerprint
from schemas.errors import DecodeError, EncodeError, UnknownSchema
from schemas.record import avro_schema, full_name
from schemas.runs import RunRequest
from schemas.trajectory import TOOL_CALLED, Injection, ToolCalled, TrajectoryEvent

pytestmark = pytest.mark.req("D02")

EVENT = TrajectoryEvent(
    event_id="s:t1",
    session_id="s",
    run_id="r",
    kind=TOOL_CALLED,
    turn=1,
    at_ms=1,
    tool_called=ToolCalled(
        call=1,
        tool="get_order",
        arguments='{"order_id": "1"}',
        response="{}",
        source="injected",
        injection=Injection(rule_id="r1", kind="outage", occurrence=1),
    ),
)


def test_an_event_comes_back_as_it_was() -> None:
    codec = Codec()
    assert codec.decode(TrajectoryEvent, codec.encode(EVENT)) == EVENT
    assert EVENT.step == "t1"


def test_the_framing_is_avro_single_object_encoding() -> None:
    data = Codec().encode(RunRequest(run_id="r", suite="s", agent_id="a"))
    assert data[:2] == b"\xc3\x01"
    schema = avro_schema(RunRequest)
    assert data[2:10] == schema_fingerprint(schema)
    datum = fastavro.schemaless_reader(io.BytesIO(data[10:]), fastavro.parse_schema(schema), None)
    assert datum["suite"] == "s"  # type: ignore[call-overload, index]


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_a_decode_error(data: bytes) -> None:
    with pytest.raises(DecodeError):
        Codec().decode(TrajectoryEvent, data)


@given(st.data())
def test_a_damaged_event_is_a_decode_error_or_another_event(data: st.DataObject) -> None:
    codec = Codec()
    good = bytearray(codec.encode(EVENT))
    position = data.draw(st.integers(0, len(good) - 1))
    good[position] ^= data.draw(st.integers(1, 255))
    with suppress(DecodeError):
        assert isinstance(codec.decode(TrajectoryEvent, bytes(good)), TrajectoryEvent)


@given(st.integers(0, 105))
def test_a_truncated_event_is_a_decode_error(length: int) -> None:
    codec = Codec()
    whole = codec.encode(EVENT)
    if length >= len(whole):
        return
    with pytest.raises(DecodeError):
        codec.decode(TrajectoryEvent, whole[:length])


def test_a_record_of_another_type_is_refused_by_name() -> None:
    codec = Codec()
    data = codec.encode(RunRequest(run_id="r", suite="s", agent_id="a"))
    with pytest.raises(DecodeError, match=r"expected windtunnel\.TrajectoryEvent, got"):
        codec.decode(TrajectoryEvent, data)


def test_an_unknown_fingerprint_is_said() -> None:
    with pytest.raises(UnknownSchema, match="0102030405060708"):
        Codec().decode(TrajectoryEvent, b"\xc3\x01" + bytes(range(1, 9)) + b"x")


def test_a_value_of_the_wrong_type_cannot_be_written() -> None:
    with pytest.raises(EncodeError, match="RunRequest"):
        Codec().encode(RunRequest(run_id=5, suite="s", agent_id="a"))  # type: ignore[arg-type]


def test_confluent_framing_round_trips_and_names_unknown_ids() -> None:
    framing = ConfluentFraming({full_name(RunRequest): 7}, {7: avro_schema(RunRequest)})
    codec = Codec(framing)
    request = RunRequest(run_id="r", suite="s", agent_id="a")
    data = codec.encode(request)
    assert data[:5] == b"\0\0\0\0\x07"
    assert codec.decode(RunRequest, data) == request
    with pytest.raises(UnknownSchema, match="id 9"):
        codec.decode(RunRequest, b"\0\0\0\0\x09x")
    with pytest.raises(EncodeError, match="TrajectoryEvent"):
        codec.encode(EVENT)


@pytest.mark.parametrize("cls", RECORDS, ids=lambda cls: str(cls.__name__))
def test_every_field_of_every_record_is_described(cls: type) -> None:
    def walk(schema: object) -> None:
        if isinstance(schema, dict) and schema.get("type") == "record":
            assert schema["doc"], schema["name"]
            for field in schema["fields"]:
                assert len(field["doc"]) > 3, (schema["name"], field["name"])
                walk(field["type"])
        elif isinstance(schema, dict):
            walk(schema.get("items") or schema.get("values"))
        elif isinstance(schema, list):
            for branch in schema:
                walk(branch)

    walk(json.loads(json.dumps(avro_schema(cls))))
