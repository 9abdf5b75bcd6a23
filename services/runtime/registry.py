"""The codec of this deployment: single-object encoding, or a schema registry's wire format."""

from __future__ import annotations

import json
from typing import Any

import httpx

from schemas.codec import RECORDS, Codec, ConfluentFraming
from schemas.record import avro_schema, full_name
from services.runtime.settings import ConfigurationError, Settings

_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"


def codec_for(settings: Settings) -> Codec:
    """The codec the settings ask for. Blocks while it registers schemas with a registry.

    Raises:
        ConfigurationError: the registry cannot be reached, or refuses a schema.
    """
    if not settings.schema_registry:
        return Codec()
    return Codec(_confluent(settings.schema_registry.rstrip("/")))


def _confluent(url: str) -> ConfluentFraming:
    ids: dict[str, int] = {}
    schemas: dict[int, dict[str, Any]] = {}
    try:
        with httpx.Client(timeout=10, headers={"Content-Type": _CONTENT_TYPE}) as client:
            for cls in RECORDS:
                # Record name strategy: a subject a record type, whatever topic it is on.
                subject = f"{url}/subjects/{full_name(cls)}/versions"
                schema = json.dumps(avro_schema(cls))
                answer = client.post(subject, json={"schema": schema})
                answer.raise_for_status()
                ids[full_name(cls)] = answer.json()["id"]
                for version in client.get(subject).raise_for_status().json():
                    entry = client.get(f"{subject}/{version}").raise_for_status().json()
                    schemas[entry["id"]] = json.loads(entry["schema"])
    except (httpx.HTTPError, KeyError, ValueError) as error:
        raise ConfigurationError(
            f"WINDTUNNEL_SCHEMA_REGISTRY: {url}: {type(error).__name__}: {error}"
        ) from None
    return ConfluentFraming(ids, schemas)
