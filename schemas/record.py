"""Avro schemas and converters derived from frozen dataclasses.

A record class is the one place where a field's name, type, default and meaning are written:

    @record
    class SessionNotice:
        run_id: Annotated[str, "The run this session belongs to."]

`avro_schema` gives its Avro schema (published as `schemas/avro/*.avsc`); `to_datum` and
`from_datum` convert between instances and what fastavro writes and reads.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping
from functools import cache
from typing import (
    Annotated,
    Any,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

NAMESPACE = "windtunnel"

_PRIMITIVES: dict[Any, str] = {
    str: "string",
    int: "long",
    float: "double",
    bool: "boolean",
    bytes: "bytes",
}

T = TypeVar("T")
Convert = Callable[[Any], Any]


@dataclass_transform(frozen_default=True, kw_only_default=True)
def record(cls: type[T]) -> type[T]:
    """Declare a frozen, keyword-only class that travels as an Avro record."""
    return dataclasses.dataclass(frozen=True, slots=True, kw_only=True)(cls)


def full_name(cls: type) -> str:
    """The Avro name of a record class, which is also what its `type` header says."""
    return f"{NAMESPACE}.{cls.__name__}"


def avro_schema(cls: type) -> dict[str, Any]:
    """The Avro schema of a record class, every named type defined at its first use.

    Raises:
        TypeError: a field's annotation has no Avro counterpart, or no description.
    """
    return _record_schema(cls, set())


def _record_schema(cls: type, seen: set[type]) -> dict[str, Any]:
    seen.add(cls)
    hints = get_type_hints(cls, include_extras=True)
    fields = []
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        if get_origin(hint) is not Annotated:
            raise TypeError(f"{cls.__name__}.{field.name}: write Annotated[type, 'what it means']")
        inner, doc = get_args(hint)[:2]
        entry: dict[str, Any] = {"name": field.name, "type": _type_schema(inner, seen), "doc": doc}
        default = _avro_default(field)
        if default is not dataclasses.MISSING:
            entry["default"] = default
        fields.append(entry)
    return {
        "type": "record",
        "name": cls.__name__,
        "namespace": NAMESPACE,
        "doc": " ".join((cls.__doc__ or "").split()),
        "fields": fields,
    }


def _avro_default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
        if value:
            raise TypeError(f"{field.name}: only empty collections can be default factories")
        return {} if isinstance(value, Mapping) else []
    if isinstance(field.default, tuple):
        return list(field.default)
    return field.default


def _type_schema(hint: Any, seen: set[type]) -> Any:
    if hint in _PRIMITIVES:
        return _PRIMITIVES[hint]
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return full_name(hint) if hint in seen else _record_schema(hint, seen)
    origin, args = get_origin(hint), get_args(hint)
    if origin is tuple and len(args) == 2 and args[1] is Ellipsis:
        return {"type": "array", "items": _type_schema(args[0], seen)}
    if _is_map(origin) and args[0] is str:
        return {"type": "map", "values": _type_schema(args[1], seen)}
    if (optional := _optional_of(hint)) is not None:
        return ["null", _type_schema(optional, seen)]
    raise TypeError(f"{hint!r} has no Avro counterpart here")


def _is_map(origin: Any) -> bool:
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _optional_of(hint: Any) -> Any:
    if get_origin(hint) not in (Union, types.UnionType):
        return None
    members = [arg for arg in get_args(hint) if arg is not type(None)]
    return members[0] if len(members) == 1 and len(get_args(hint)) == 2 else None


@cache
def to_datum(cls: type) -> Convert:
    """A function from an instance of `cls` to the dict that fastavro writes."""
    getters = [
        (name, _writer(inner), optional_record)
        for name, inner, optional_record in _field_types(cls)
    ]

    def convert(value: Any) -> dict[str, Any]:
        datum = {}
        for name, write, branch in getters:
            item = getattr(value, name)
            if write is not None and item is not None:
                item = write(item)
                if branch is not None:
                    # Naming the branch spares fastavro a validation of every candidate.
                    item = (branch, item)
            datum[name] = item
        return datum

    return convert


@cache
def from_datum(cls: type) -> Convert:
    """A function from the dict that fastavro read to an instance of `cls`."""
    readers = [(name, _reader(inner)) for name, inner, _ in _field_types(cls)]

    def convert(datum: dict[str, Any]) -> Any:
        values = {}
        for name, read in readers:
            item = datum[name]
            values[name] = read(item) if read is not None and item is not None else item
        return cls(**values)

    return convert


@cache
def _field_types(cls: type) -> list[tuple[str, Any, str | None]]:
    """Each field as (name, type without Optional, Avro branch if an optional record)."""
    hints = get_type_hints(cls)
    found = []
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        optional = _optional_of(hint)
        is_branch = optional is not None and dataclasses.is_dataclass(optional)
        found.append(
            (
                field.name,
                hint if optional is None else optional,
                full_name(optional) if is_branch else None,
            )
        )
    return found


def _writer(hint: Any) -> Convert | None:
    return _converter(hint, to_datum, list)


def _reader(hint: Any) -> Convert | None:
    return _converter(hint, from_datum, tuple)


def _converter(hint: Any, of_record: Callable[[type], Convert], sequence: type) -> Convert | None:
    """The conversion of one value, or None where the value is the same on both sides."""
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return of_record(hint)
    origin, args = get_origin(hint), get_args(hint)
    if origin is tuple:
        item = _converter(args[0], of_record, sequence)
        if item is None:
            return sequence
        convert_item = item
        return lambda values: sequence(convert_item(value) for value in values)
    if _is_map(origin):
        item = _converter(args[1], of_record, sequence)
        if item is None:
            return dict
        convert_value = item
        return lambda values: {key: convert_value(value) for key, value in values.items()}
    return None
