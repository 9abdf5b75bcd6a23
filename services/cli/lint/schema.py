"""JSON Schema of scenario and suite files, for editors. Generated from the models.

A schema refuses what the loader refuses for its shape: unknown and missing fields, types, ranges,
names, JSON pointers. It leaves to the loader what no shape shows: regular expressions, repeated
ids, canaries that are not named, and fields that do not go together. In two places it differs on
purpose:

- a file of a suite is read over the suite's `defaults`, so a field that defaults may give is not
  required: only `name` and what belongs to entries of lists is;
- texts that the loader reads as numbers or booleans (`"3"`, `no`) are refused.
"""

from __future__ import annotations

import copy
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from schemas.assertions import Utterance
from schemas.moments import KINDS
from schemas.policies import FORMS, Within
from schemas.scenario import ScenarioFile, SuiteFile
from schemas.user import Persona

Schema = dict[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"
_DEFAULTS = "ScenarioDefaults"
_GIVEN = (
    ("Policy", "oneOf", FORMS),
    *((form, "oneOf", KINDS) for form in ("Always", "Requires", "AtMost", "Follows")),
    *((part, "oneOf", KINDS) for part in ("Moment", "Unless")),
    ("Never", "anyOf", KINDS),
    ("Within", "anyOf", tuple(Within.model_fields)),
    ("Utterance", "anyOf", tuple(Utterance.model_fields)),
)
"""Models of which exactly one, or at least one, of some fields has to be given."""


class _Plain(GenerateJsonSchema):
    """Without titles, which only repeat the fields' names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def scenario_schema(*, for_files: bool = True) -> Schema:
    """The schema of a scenario file. A fresh object.

    Args:
        for_files: Do not require what a suite's defaults may give.
    """
    schema = _of(ScenarioFile)
    if for_files:
        _lenient(schema["$defs"], schema["$defs"]["Scenario"], keep=("name",))
    schema["title"] = "Windtunnel scenario"
    return schema


def suite_schema() -> Schema:
    """The schema of a `suite.yaml`. A fresh object."""
    schema = _of(SuiteFile)
    definitions = scenario_schema()["$defs"]
    definitions[_DEFAULTS] = {**definitions.pop("Scenario"), "required": []}
    definitions[_DEFAULTS]["description"] = "What every scenario of the suite starts from."
    schema["properties"]["defaults"] = {
        "$ref": f"#/$defs/{_DEFAULTS}",
        "description": schema["properties"]["defaults"]["description"],
    }
    schema["$defs"] = definitions
    schema["title"] = "Windtunnel suite"
    return schema


def _of(model: type[BaseModel]) -> Schema:
    schema = copy.deepcopy(model.model_json_schema(schema_generator=_Plain))
    for definition in (schema, *schema.get("$defs", {}).values()):
        definition.pop("title", None)
        _close_patterns(definition)
    definitions = schema.get("$defs", {})
    if "User" in definitions:
        _short_forms(definitions)
    if "Policy" in definitions:
        for name, word, fields in _GIVEN:
            definitions[name][word] = [  # what is written as null is not given
                {"required": [field], "properties": {field: {"not": {"type": "null"}}}}
                for field in fields
            ]
    return {"$schema": DIALECT, **schema}


def _close_patterns(schema: Any) -> None:
    """Keys that do not fit a mapping's pattern are refused."""
    if isinstance(schema, dict):
        if "patternProperties" in schema:
            schema["additionalProperties"] = False
        for value in schema.values():
            _close_patterns(value)
    elif isinstance(schema, list):
        for value in schema:
            _close_patterns(value)


def _short_forms(definitions: Schema) -> None:
    """What the models' validators let people write for short."""
    user = definitions["User"]["properties"]
    styles = list(get_args(Persona.model_fields["style"].annotation))
    user["personas"]["items"] = {"anyOf": [{"enum": styles}, user["personas"]["items"]]}
    user["tools"]["items"] = {"anyOf": [{"type": "string"}, user["tools"]["items"]]}
    fact = user["facts"]["additionalProperties"]
    scalars = [{"type": kind} for kind in ("string", "number", "boolean")]
    user["facts"]["additionalProperties"] = {"anyOf": [*scalars, fact]}


def _lenient(definitions: Schema, schema: Any, keep: tuple[str, ...] = ()) -> None:
    """Require nothing in mappings, which are merged with the defaults; lists are not."""
    if not isinstance(schema, dict):
        return
    if "required" in schema and "oneOf" not in schema:
        schema["required"] = [name for name in schema["required"] if name in keep]
    if "$ref" in schema:
        _lenient(definitions, definitions[schema["$ref"].rpartition("/")[2]])
    for option in schema.get("anyOf", ()):
        _lenient(definitions, option)
    for part in schema.get("properties", {}).values():
        _lenient(definitions, part)
    _lenient(definitions, schema.get("additionalProperties"))
