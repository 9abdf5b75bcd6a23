"""D02: published schemas match the code, evolve compatibly both ways, and carry examples.

`schemas/history` holds every released version, one file each, named `<Record>.<n>.avsc`. After
an intended, compatible change: `make schemas` writes the current schema, and the release that
carries it copies it to the history under the next number.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.schema import parse as parse_avro

from deploy.kafka.generate import files
from schemas.codec import RECORDS, Codec
from schemas.record import avro_schema, from_datum, to_datum
from schemas.topics import ALL

pytestmark = pytest.mark.req("D02")

SCHEMAS = Path(__file__).parents[2] / "schemas"
HISTORY = sorted((SCHEMAS / "history").glob("*.avsc"))


def test_generated_files_are_up_to_date() -> None:
    stale = [str(path) for path, text in files().items() if path.read_text() != text]
    assert not stale, f"run `make schemas` and commit: {stale}"


@pytest.mark.parametrize("path", HISTORY, ids=lambda path: str(path.name))
def test_current_schemas_and_released_ones_read_each_other(path: Path) -> None:
    name = path.name.split(".")[0]
    current = parse_avro(json.dumps(avro_schema({c.__name__: c for c in RECORDS}[name])))
    released = parse_avro(path.read_text())
    check = ReaderWriterCompatibilityChecker()
    for reader, writer, which in (
        (current, released, "cannot read what was written before"),
        (released, current, "breaks readers that are not upgraded yet"),
    ):
        result = check.get_compatibility(reader=reader, writer=writer)
        assert result.compatibility is SchemaCompatibilityType.compatible, (
            f"{name} {which}: {result.messages} at {result.locations}"
        )


def test_every_record_has_a_released_version() -> None:
    assert {path.name.split(".")[0] for path in HISTORY} == {cls.__name__ for cls in RECORDS}


def test_the_check_notices_a_field_without_default() -> None:
    changed = avro_schema(RECORDS[0])
    changed["fields"].append({"name": "new", "type": "string", "doc": "no default"})
    result = ReaderWriterCompatibilityChecker().get_compatibility(
        reader=parse_avro(json.dumps(changed)),
        writer=parse_avro(json.dumps(avro_schema(RECORDS[0]))),
    )
    assert result.compatibility is SchemaCompatibilityType.incompatible


@pytest.mark.parametrize("topic", ALL, ids=lambda topic: str(topic.name))
def test_every_topic_has_an_example_that_travels(topic) -> None:  # type: ignore[no-untyped-def]
    text = (SCHEMAS / "examples" / f"{topic.name}.json").read_text()
    datum = json.loads(text)
    if topic.name == "dead-letters":
        datum = {**datum, "key": datum["key"].encode(), "value": datum["value"].encode("latin-1")}
    if topic.name == "sources":
        datum = {**datum, "data": datum["data"].encode("latin-1")}
    value = from_datum(topic.record)(datum)
    codec = Codec()
    assert codec.decode(topic.record, codec.encode(value)) == value
    assert to_datum(topic.record)(value).keys() == datum.keys()


def test_co_partitioned_topics_are_pairs() -> None:
    groups: dict[str, list[str]] = {}
    for topic in ALL:
        groups.setdefault(topic.partition_group, []).append(topic.name)
    assert groups["runs"] == ["run-requests", "run-progress"]
    assert groups["sessions"] == ["trajectories", "scores"]
