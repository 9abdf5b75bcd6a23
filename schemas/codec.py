"""Bytes to records and back.

The default framing is Avro single-object encoding: the marker bytes C3 01, the writer schema's
CRC-64-AVRO fingerprint in little-endian order, the body (Avro specification 1.12, "Single
object encoding"). A reader therefore needs this package and no registry. `ConfluentFraming`
reads and writes the registry's format instead: a zero byte, the schema's id as four big-endian
bytes, the body.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any, Protocol, TypeVar

import fastavro
from fastavro.schema import fingerprint, to_parsing_canonical_form

from schemas import topics
from schemas.errors import DecodeError, EncodeError, UnknownSchema
from schemas.record import avro_schema, from_datum, full_name, to_datum

T = TypeVar("T")

SINGLE_OBJECT_MARKER = b"\xc3\x01"
RECORDS: tuple[type, ...] = tuple(topic.record for topic in topics.ALL)


_PARSED = {cls: fastavro.parse_schema(avro_schema(cls)) for cls in RECORDS}
_TO_DATUM = {cls: to_datum(cls) for cls in RECORDS}
_FROM_DATUM = {cls: from_datum(cls) for cls in RECORDS}


def schema_fingerprint(schema: Mapping[str, Any]) -> bytes:
    """The 8 fingerprint bytes of a schema, in the order in which they travel."""
    canonical = to_parsing_canonical_form(dict(schema))
    return bytes.fromhex(fingerprint(canonical, "CRC-64-AVRO"))


class Framing(Protocol):
    """How a body says which schema wrote it."""

    def prefix(self, cls: type) -> bytes:
        """The bytes before the body. Raises EncodeError where the schema is not known to it."""

    def split(self, data: bytes) -> tuple[Any, int]:
        """The writer's parsed schema and the body's offset. Raises DecodeError."""


class SingleObjectFraming:
    """Avro single-object encoding over the current schemas and the recorded earlier ones."""

    def __init__(self, earlier: Iterable[Mapping[str, Any]] = ()) -> None:
        self._by_fingerprint = {
            schema_fingerprint(schema): fastavro.parse_schema(dict(schema)) for schema in earlier
        }
        self._prefixes = {}
        for cls in RECORDS:
            mark = schema_fingerprint(avro_schema(cls))
            self._by_fingerprint[mark] = _PARSED[cls]
            self._prefixes[cls] = SINGLE_OBJECT_MARKER + mark

    def prefix(self, cls: type) -> bytes:
        try:
            return self._prefixes[cls]
        except KeyError:
            raise EncodeError(f"{cls.__name__} is not the record of any topic") from None

    def split(self, data: bytes) -> tuple[Any, int]:
        if data[:2] != SINGLE_OBJECT_MARKER or len(data) < 10:
            raise DecodeError(
                f"expected Avro single-object encoding (C3 01 and 8 fingerprint bytes), "
                f"got {data[:10].hex(' ') or 'nothing'}"
            )
        schema = self._by_fingerprint.get(data[2:10])
        if schema is None:
            raise UnknownSchema(
                f"no schema with fingerprint {data[2:10].hex()}; is the writer newer than this?"
            )
        return schema, 10


class ConfluentFraming:
    """The Confluent wire format, over ids that the caller has looked up or registered."""

    def __init__(self, ids: Mapping[str, int], schemas: Mapping[int, Mapping[str, Any]]) -> None:
        """`ids`: schema id by record name; `schemas`: every known writer schema by id."""
        self._ids = dict(ids)
        self._schemas = {i: fastavro.parse_schema(dict(schema)) for i, schema in schemas.items()}

    def prefix(self, cls: type) -> bytes:
        if full_name(cls) not in self._ids:
            raise EncodeError(f"{full_name(cls)} has no id in the schema registry")
        return b"\0" + self._ids[full_name(cls)].to_bytes(4, "big")

    def split(self, data: bytes) -> tuple[Any, int]:
        if len(data) < 5 or data[0] != 0:
            raise DecodeError(
                f"expected the Confluent wire format (00 and a 4-byte schema id), "
                f"got {data[:5].hex(' ') or 'nothing'}"
            )
        schema_id = int.from_bytes(data[1:5], "big")
        if schema_id not in self._schemas:
            raise UnknownSchema(f"the schema registry's id {schema_id} is not known here")
        return self._schemas[schema_id], 5


class Codec:
    """Encodes and decodes the records of all topics with one framing. Thread-safe."""

    def __init__(self, framing: Framing | None = None) -> None:
        self._framing = framing or SingleObjectFraming(earlier_schemas())

    def encode(self, value: Any) -> bytes:
        """The framed bytes of a record.

        Raises:
            EncodeError: a field's value does not fit the schema.
        """
        cls = type(value)
        out = io.BytesIO()
        out.write(self._framing.prefix(cls))
        try:
            fastavro.schemaless_writer(out, _PARSED[cls], _TO_DATUM[cls](value))
        except (ValueError, TypeError, AttributeError, OverflowError) as error:
            raise EncodeError(f"{cls.__name__}: {error}") from error
        return out.getvalue()

    def decode(self, cls: type[T], data: bytes) -> T:
        """The record in framed bytes, read with the current schema of `cls`.

        Raises:
            DecodeError: wrong framing, unknown writer, truncated or damaged body, or a record
                of another type.
        """
        writer, offset = self._framing.split(data)
        if writer["name"] != full_name(cls):
            raise DecodeError(f"expected {full_name(cls)}, got {writer['name']}")
        body = io.BytesIO(data)
        body.seek(offset)
        reader = _PARSED[cls]
        try:
            datum = fastavro.schemaless_reader(body, writer, None if writer is reader else reader)
            if body.read(1):
                raise DecodeError(f"{cls.__name__}: bytes left over after the body")
            value: T = _FROM_DATUM[cls](datum)
        except DecodeError:
            raise
        # A damaged body can surface as almost anything from inside the reader.
        except Exception as error:
            raise DecodeError(f"{cls.__name__}: {type(error).__name__}: {error}") from error
        return value


def earlier_schemas() -> list[dict[str, Any]]:
    """Every schema version that was ever released, from `schemas/history`."""
    history = resources.files("schemas") / "history"
    if not history.is_dir():
        return []
    files = sorted(history.iterdir(), key=lambda entry: entry.name)
    return [json.loads(entry.read_text()) for entry in files if entry.name.endswith(".avsc")]
