"""A database as what differs from one that never changes.

tau2's databases have up to 7 MB, and a session changes a few records of them. So a session's state
holds only these, as JSON:

    {"orders": {"#W1": {"status": "cancelled"}}}    of a table's record, the fields that differ
    {"orders": {"#W9": {...}}}                       a new record, with all its fields
    {"orders": {"#W2": "$gone"}}                     a record that is gone
    {"device": {"airplane_mode": true}}              of a single record, likewise
    {"lines": [...]}                                 a list that differs, as a whole

What is not named is as it is in the database. There are no nulls, which a merge patch would take
for removals: null is written `"$null"`. Records are copied when they are first looked at, and only
those that were are compared afterwards.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, cast, get_args, get_origin

import orjson
from pydantic import BaseModel, TypeAdapter

JsonObject = dict[str, Any]
GONE = "$gone"
NULL = "$null"


class Table(MutableMapping[str, BaseModel]):
    """A table of records by id that leaves the one it stands for as it is."""

    def __init__(self, base: Base, name: str, changes: Mapping[str, Any]) -> None:
        self._base, self._name, self._changes = base, name, changes
        self._records = base.records(name)
        self._own: dict[str, BaseModel] = {}
        self._gone = {key for key, value in changes.items() if value == GONE}
        self._added = {
            key: None for key in changes if key not in self._records and key not in self._gone
        }

    def __getitem__(self, key: str) -> BaseModel:
        if key in self._own:
            return self._own[key]
        if key not in self:
            raise KeyError(key)
        changed = self._changes.get(key)
        if not isinstance(changed, Mapping):
            record = self._base.copy_of(self._name, key)
        else:
            kind = self._base.record_type(self._name)
            record = _built(kind, self._base.dump(self._name, key), changed)
        self._own[key] = record
        return record

    def __setitem__(self, key: str, record: BaseModel) -> None:
        if key not in self._records:
            self._added[key] = None
        self._gone.discard(key)
        self._own[key] = record

    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        self._own.pop(key, None)
        self._added.pop(key, None)
        self._gone.add(key)

    def __contains__(self, key: object) -> bool:
        try:
            return (key in self._records or key in self._added) and key not in self._gone
        except TypeError:
            return False

    def __iter__(self) -> Iterator[str]:
        yield from [key for key in (*self._records, *self._added) if key not in self._gone]

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def changes(self) -> JsonObject:
        """What differs now, by id."""
        found: JsonObject = {}
        for key in dict.fromkeys((*self._changes, *self._own, *self._gone)):
            if key in self._gone:
                if key in self._records:
                    found[key] = GONE
                continue
            # A change that came from outside is compared as well: it may be none.
            differing = changed_fields(self._base.dump(self._name, key), dumped(self[key]))
            if differing or key not in self._records:
                found[key] = differing
        return found


class Base:
    """A database that never changes, and its copies that do.

    Args:
        database: A pydantic model, whose fields are tables (`dict[str, Record]`), single records,
            or anything else. It must not be changed any more.
    """

    def __init__(self, database: BaseModel) -> None:
        self._database = database
        self._dumps: dict[tuple[str, str], JsonObject] = {}
        self._pickles: dict[tuple[str, str], bytes] = {}
        self._tables: dict[str, type[BaseModel]] = {}
        for name, field in type(database).model_fields.items():
            arguments = get_args(field.annotation)
            if get_origin(field.annotation) is dict and _is_record(arguments[1]):
                self._tables[name] = arguments[1]
        self._whole = dumped(database, exclude=set(self._tables))

    def records(self, table: str) -> Mapping[str, BaseModel]:
        """A table's records. They must not be changed."""
        records: Mapping[str, BaseModel] = getattr(self._database, table)
        return records

    def record_type(self, table: str) -> type[BaseModel]:
        """What a table's records are."""
        return self._tables[table]

    def copy_of(self, table: str, key: str) -> BaseModel:
        """A private copy of a record. Raises KeyError when there is none."""
        packed = self._pickles.get((table, key))
        if packed is None:
            packed = self._pickles[table, key] = pickle.dumps(self.records(table)[key])
        record: BaseModel = pickle.loads(packed)
        return record

    def dump(self, table: str, key: str) -> JsonObject:
        """A record of a table as JSON, empty for one that is not there. It must not be changed."""
        found = self._dumps.get((table, key))
        if found is None:
            record = self.records(table).get(key)
            if record is None:
                return {}
            found = self._dumps[table, key] = dumped(record)
        return found

    def with_changes(self, changes: Mapping[str, Any]) -> Any:
        """The database as it is with the changes: a private copy, of the same type.

        Raises:
            ValueError: the changes do not fit (pydantic's ValidationError is one).
        """
        known = type(self._database).model_fields
        if unknown := sorted(set(changes) - set(known)):
            raise ValueError(f"there is no {unknown[0]}; there are {', '.join(known)}")
        values: dict[str, Any] = {}
        for name, field in known.items():
            given = changes.get(name)
            current = getattr(self._database, name)
            if name in self._tables:
                values[name] = Table(self, name, given or {})
            elif given is None:
                values[name] = pickle.loads(pickle.dumps(current))
            elif isinstance(current, BaseModel) and isinstance(given, Mapping):
                values[name] = _built(type(current), self._whole[name], given)
            else:
                adapter: TypeAdapter[Any] = TypeAdapter(cast(Any, field.annotation))
                plain = _with_nulls(given)
                values[name] = _as_left(adapter.validate_python(plain), plain)
        return type(self._database).model_construct(**values)

    def changes(self, database: BaseModel) -> JsonObject:
        """What differs in a database of this type, one made by `with_changes` or any other."""
        found: JsonObject = {}
        rest = dumped(database, exclude=set(self._tables))
        for name in self._tables:
            table = getattr(database, name)
            if not isinstance(table, Table):
                records, table = table, Table(self, name, {})
                for key in [key for key in self.records(name) if key not in records]:
                    del table[key]
                table.update(records)
            if differing := table.changes():
                found[name] = differing
        for name, value in rest.items():
            if _text(value) != _text(self._whole[name]):
                is_record = isinstance(getattr(self._database, name), BaseModel)
                whole = not is_record or not isinstance(value, Mapping)
                found[name] = (
                    _without_nulls(value) if whole else changed_fields(self._whole[name], value)
                )
        return found


def changed_fields(before: Mapping[str, Any], after: Mapping[str, Any]) -> JsonObject:
    """The fields that are not as they were. 1 and 1.0 differ, as they do in tau2's hashes."""
    return {
        name: _without_nulls(value)
        for name, value in after.items()
        if name not in before or _text(before[name]) != _text(value)
    }


def dumped(model: BaseModel, exclude: set[str] | None = None) -> JsonObject:
    """A model as JSON. What tau2's tools have put there unchecked is taken as it is."""
    # Not in pydantic's JSON mode, which makes 1 in a field of floats 1.0.
    plain = model.model_dump(warnings=False, exclude=exclude)
    text = orjson.dumps(plain, default=str, option=orjson.OPT_NON_STR_KEYS)
    result: JsonObject = orjson.loads(text)
    return result


def _built(kind: type[BaseModel], before: Mapping[str, Any], changed: Mapping[str, Any]) -> Any:
    given = _with_nulls(changed)
    return _as_left(kind.model_validate({**before, **given}), given)


def _as_left(value: Any, given: Any) -> Any:
    """With numbers as they are given: tau2 does not check what its tools assign, and hashes 1 in a
    field of floats as another value than 1.0."""
    if isinstance(value, BaseModel) and isinstance(given, Mapping):
        for name in given.keys() & value.__dict__.keys():
            value.__dict__[name] = _as_left(value.__dict__[name], given[name])
    elif isinstance(value, dict) and isinstance(given, Mapping):
        for name in given.keys() & value.keys():
            value[name] = _as_left(value[name], given[name])
    elif isinstance(value, list) and isinstance(given, list) and len(value) == len(given):
        value[:] = map(_as_left, value, given)
    elif type(value) in (int, float) and type(given) in (int, float):
        return given
    return value


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_nulls(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return NULL if value is None else value


def _with_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _with_nulls(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_nulls(item) for item in value]
    return None if value == NULL else value


def _is_record(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _text(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
