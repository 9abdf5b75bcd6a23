"""Answers made up from a tool's output schema, for tools that no world stands behind.

The same question gets the same answer throughout a session: everything is drawn from the session's
seed, the tool and the arguments. Fields that are named as an argument repeat it, so whoever asks
for order 7 is told of order 7. Nothing is remembered: what one tool does, no other one knows of.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import orjson

from services.tool_proxy import made_up_values as values
from services.tool_proxy.jsons import canonical, private_copy
from services.tool_proxy.made_up_patterns import matching
from services.tool_proxy.validation import SchemaUnusable, violations

_ATTEMPTS = 24
_MAX_NODES = 2000
_MAX_ITEMS = 500
_MAX_TEXT = 10_000
_DEEP = 5
"""From here on only what must be there is."""
_TOO_DEEP = 40


def made_up(
    schema: bytes, *, tool: str, arguments: Mapping[str, Any], seed: int, now: datetime
) -> Any:
    """A value that the schema, given as JSON text, allows.

    Raises:
        SchemaUnusable: it cannot be used, or nothing was found that it allows.
    """
    read = orjson.loads(schema)
    question = canonical(arguments).decode()
    wrong = "it allows nothing"
    for attempt in range(_ATTEMPTS):
        chance = random.Random(f"made up:{seed}:{tool}:{question}:{attempt}")
        # Where repeating arguments breaks the schema, every other attempt does without.
        maker = _Maker(read, {} if attempt % 2 else arguments, now, chance)
        try:
            value = private_copy(maker.value(read, "", 0))
        except SchemaUnusable as error:
            wrong = str(error)  # another attempt may take another branch
            continue
        found = violations(schema, value)
        if not found:
            return value
        wrong = f"{found[0].path or 'the value'}: {found[0].message}"
    raise SchemaUnusable(
        f"no answer could be made up from the output schema ({wrong}): `examples` or an `enum` help"
    )


class _Maker:
    """Makes one value."""

    def __init__(
        self, root: Any, echoed: Mapping[str, Any], now: datetime, chance: random.Random
    ) -> None:
        self._root = root
        self._echoed = {values.words_of(name): value for name, value in echoed.items()}
        self._now = now
        self._chance = chance
        self._nodes = 0

    def value(self, schema: Any, name: str, depth: int) -> Any:
        """A value for a schema, at a property of this name."""
        self._nodes += 1
        if self._nodes > _MAX_NODES:
            raise SchemaUnusable(f"it asks for more than {_MAX_NODES} values")
        if depth > _TOO_DEEP:
            raise SchemaUnusable("it refers to itself without an end")
        if schema is False:
            raise SchemaUnusable(f"it allows nothing at {name or 'its root'}")
        if not isinstance(schema, dict):
            schema = {}
        schema = self._flat(schema, depth)
        if "const" in schema:
            return schema["const"]
        if _some(schema.get("enum")):
            return self._chance.choice(schema["enum"])
        kind = self._kind(schema, depth)
        echo = self._echoed.get(values.words_of(name)) if name else None
        if echo is not None and kind in _kinds_of(echo):
            return echo
        examples = [e for e in _list(schema.get("examples")) if kind in _kinds_of(e)]
        if examples:
            return self._chance.choice(examples)
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            return self._array(schema, name, depth)
        if kind == "string":
            return self._string(schema, name)
        if kind in ("integer", "number"):
            return self._number(schema, name, kind)
        return self._chance.random() < 0.5 if kind == "boolean" else None

    def _flat(self, schema: Mapping[str, Any], depth: int, seen: int = 0) -> dict[str, Any]:
        """With references, allOf, and one branch of anyOf and oneOf laid into it."""
        if seen > _TOO_DEEP:
            raise SchemaUnusable("it refers to itself without an end")
        flat = {k: v for k, v in schema.items() if k not in ("$ref", "allOf", "anyOf", "oneOf")}
        parts = [self._resolved(schema["$ref"])] if "$ref" in schema else []
        parts += _list(schema.get("allOf"))
        for choice in ("anyOf", "oneOf"):
            if branches := [b for b in _list(schema.get(choice)) if b is not False]:
                parts.append(self._branch(branches, depth))
        for part in parts:
            if part is False:
                raise SchemaUnusable("a part of it allows nothing")
            if isinstance(part, dict):
                flat = _both(self._flat(part, depth, seen + 1), flat)
        return flat

    def _branch(self, branches: Sequence[Any], depth: int) -> Any:
        if depth >= _DEEP:
            return min(branches, key=lambda branch: len(self._closed(branch)))
        full = [b for b in branches if not (isinstance(b, dict) and b.get("type") == "null")]
        if full and len(full) < len(branches) and self._chance.random() < 0.85:
            branches = full
        return self._chance.choice(branches)

    def _closed(self, branch: Any) -> bytes:
        """Its text, longer by far if it refers to something: a measure of what it leads to."""
        text = canonical(branch)
        return text * 100 if b'"$ref"' in text else text

    def _resolved(self, reference: Any) -> Any:
        if not isinstance(reference, str) or not (reference == "#" or reference[:2] == "#/"):
            raise SchemaUnusable(f"only references within the schema are followed, not {reference}")
        found = self._root
        for part in reference.split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or part not in found:
                raise SchemaUnusable(f"there is no {reference}")
            found = found[part]
        return found

    def _kind(self, schema: Mapping[str, Any], depth: int) -> str:
        kinds = schema.get("type")
        if isinstance(kinds, str):
            return kinds
        listed = [kind for kind in _list(kinds) if isinstance(kind, str)]
        if listed:
            full = [kind for kind in listed if kind != "null"]
            rather_null = "null" in listed and (depth >= _DEEP or self._chance.random() < 0.15)
            return "null" if rather_null or not full else self._chance.choice(full)
        for kind, words in _TOLD_BY.items():
            if schema.keys() & words:
                return kind
        return "string"

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        properties = schema.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        required = [name for name in _list(schema.get("required")) if isinstance(name, str)]
        made: dict[str, Any] = {}
        for name, inner in properties.items():
            if name in required:
                made[name] = self.value(inner, name, depth + 1)
            elif depth < _DEEP and self._chance.random() < 0.9:
                with suppress(SchemaUnusable):  # it can do without
                    made[name] = self.value(inner, name, depth + 1)
        others = schema.get("additionalProperties", True)
        for name in required:
            if name not in made:
                made[name] = self.value(others, name, depth + 1)
        least = _bound(schema, "minProperties", 0, _MAX_ITEMS)
        if not properties and isinstance(others, dict):
            least = max(least, 0 if depth >= _DEEP else self._chance.randint(1, 3))
        most = _bound(schema, "maxProperties", _MAX_ITEMS, _MAX_ITEMS)
        for number in range(_MAX_ITEMS):
            if len(made) >= min(least, most):
                break
            name = values.text("", "", self._now, self._chance)
            key = name if name not in made else f"{name}_{number}"
            made[key] = self.value(others, key, depth + 1)
        return made

    def _array(self, schema: Mapping[str, Any], name: str, depth: int) -> list[Any]:
        least = _bound(schema, "minItems", 0, _MAX_ITEMS)
        most = _bound(schema, "maxItems", _MAX_ITEMS, _MAX_ITEMS)
        leading = _list(schema.get("prefixItems"))
        items = schema.get("items", not leading)
        if isinstance(items, list):  # as drafts before 2020-12 have it
            leading, items = items, schema.get("additionalItems", False)
        usual = len(leading) if leading else 0 if depth >= _DEEP else self._chance.randint(1, 3)
        length = min(max(least, usual), most)
        if items is False:
            length = min(length, len(leading))
        if "contains" in schema:
            leading = [schema["contains"], *leading]
            length = max(length, 1)
        made: list[Any] = []
        seen: set[bytes] = set()
        single = name[:-1] if name.endswith("s") else name
        for number in range(length):
            one = leading[number] if number < len(leading) else items
            value = self.value(one, single, depth + 1)
            for _ in range(_ATTEMPTS if schema.get("uniqueItems") else 0):
                if canonical(value) not in seen:
                    break
                value = self.value(one, "", depth + 1)
            seen.add(canonical(value))
            made.append(value)
        return made

    def _string(self, schema: Mapping[str, Any], name: str) -> str:
        least = _bound(schema, "minLength", 0, _MAX_TEXT)
        most = _bound(schema, "maxLength", _MAX_TEXT, _MAX_TEXT)
        if isinstance(pattern := schema.get("pattern"), str) and pattern:
            return matching(pattern, least, most, self._chance)
        form = schema.get("format")
        made = values.text(name, form if isinstance(form, str) else "", self._now, self._chance)
        while len(made) < least:
            made += " " + values.text("", "", self._now, self._chance)
        return made[: max(most, 0)].rstrip() if len(made) > most and most > least else made[:most]

    def _number(self, schema: Mapping[str, Any], name: str, kind: str) -> float:
        low, high = _limit(schema, "minimum", "exclusiveMinimum", max), _limit(
            schema, "maximum", "exclusiveMaximum", min
        )  # fmt: skip
        step = schema.get("multipleOf")
        if kind == "integer" and not (isinstance(step, int | float) and step >= 1):
            step = 1
        drawn = values.number(name, low, high, self._chance)
        if isinstance(step, int | float) and step > 0:
            times = round(drawn / step)
            if low is not None and times * step <= low:
                exact = math.ceil(low / step)
                times = exact + (exact * step <= low and low == schema.get("exclusiveMinimum"))
            if high is not None and times * step >= high:
                exact = math.floor(high / step)
                times = exact - (exact * step >= high and high == schema.get("exclusiveMaximum"))
            return times * int(step) if float(step).is_integer() else round(times * step, 10)
        rounded = round(drawn, 2)
        inside = (low is None or rounded > low) and (high is None or rounded < high)
        return rounded if inside else drawn


_TOLD_BY: Mapping[str, frozenset[str]] = {
    "object": frozenset(
        {"properties", "required", "additionalProperties", "minProperties", "patternProperties"}
    ),
    "array": frozenset({"items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains"}),
    "string": frozenset({"pattern", "format", "minLength", "maxLength"}),
    "number": frozenset(
        {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
    ),
}


def _both(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """A schema that asks for what both ask for, as far as that can be seen from the outside."""
    both = {**one, **other}
    for name in one.keys() & other.keys():
        left, right = one[name], other[name]
        if name == "properties" and isinstance(left, dict) and isinstance(right, dict):
            shared = {key: {"allOf": [left[key], right[key]]} for key in left.keys() & right.keys()}
            both[name] = {**left, **right, **shared}
        elif name == "required":
            both[name] = list(dict.fromkeys([*_list(left), *_list(right)]))
        elif name == "enum":
            both[name] = [value for value in _list(left) if value in _list(right)]
        elif name in ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"):
            both[name] = max(left, right)
        elif name in ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"):
            both[name] = min(left, right)
        elif name == "type":
            common = [kind for kind in _listed(left) if kind in _listed(right)]
            both[name] = common or right
    return both


def _kinds_of(value: Any) -> frozenset[str]:
    if isinstance(value, bool):
        return frozenset({"boolean"})
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return frozenset({"integer", "number"})
    if isinstance(value, float):
        return frozenset({"number"})
    kinds: dict[type, str] = {str: "string", list: "array", dict: "object", type(None): "null"}
    return frozenset({kinds[type(value)]})


def _limit(schema: Mapping[str, Any], inclusive: str, exclusive: str, pick: Any) -> float | None:
    given = [schema.get(name) for name in (inclusive, exclusive)]
    numbers = [n for n in given if isinstance(n, int | float) and not isinstance(n, bool)]
    return pick(numbers) if numbers else None


def _bound(schema: Mapping[str, Any], name: str, usual: int, most: int) -> int:
    value = schema.get(name, usual)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return usual
    if value > most and name.startswith("min"):
        raise SchemaUnusable(f"{name} {value} is more than {most}")
    return min(int(value), most)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _some(value: Any) -> bool:
    return isinstance(value, list) and bool(value)
