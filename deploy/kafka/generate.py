"""Writes what is generated from the topic table: Avro schemas, AsyncAPI, the topics page.

`python -m deploy.kafka.generate` writes the files; a test fails when they are out of date.
"""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from schemas.record import avro_schema
from schemas.topics import ALL, Topic

ROOT = Path(__file__).resolve().parents[2]


def files() -> dict[Path, str]:
    """Every generated file and what it should hold."""
    found = {
        ROOT / "schemas" / "avro" / f"{topic.record.__name__}.avsc": json.dumps(
            avro_schema(topic.record), indent=2
        )
        + "\n"
        for topic in ALL
    }
    found[ROOT / "deploy" / "kafka" / "asyncapi.yaml"] = yaml.safe_dump(
        asyncapi(), sort_keys=False, width=100
    )
    found[ROOT / "docs" / "topics.md"] = topics_page()
    return found


def asyncapi() -> dict[str, object]:
    """An AsyncAPI 3.0 document of the topics."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Windtunnel",
            "version": "1",
            "description": "Topics of Windtunnel. Values use Avro single-object encoding.",
        },
        "defaultContentType": "application/vnd.apache.avro",
        "channels": {topic.name: _channel(topic) for topic in ALL},
    }


def _channel(topic: Topic) -> dict[str, object]:
    name = topic.record.__name__
    return {
        "address": topic.full_name,
        "description": topic.purpose,
        "messages": {
            name: {
                "name": name,
                "contentType": "application/vnd.apache.avro",
                "bindings": {"kafka": {"key": {"type": "string", "description": topic.key}}},
                "payload": {
                    "schemaFormat": "application/vnd.apache.avro+json;version=1.12.0",
                    "schema": {"$ref": f"../../schemas/avro/{name}.avsc"},
                },
            }
        },
        "bindings": {"kafka": {"topicConfiguration": dict(topic.config())}},
    }


def topics_page() -> str:
    """The topic table for people."""
    lines = [
        "# Topics",
        "",
        "Generated from `schemas/topics.py` by `python -m deploy.kafka.generate`.",
        "",
        "| topic | key | record | cleanup | written by | read by | what for |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| `{topic.full_name}` | {topic.key} | "
        f"[{topic.record.__name__}](../schemas/avro/{topic.record.__name__}.avsc) | "
        f"{'compact' if topic.compacted else 'delete'} | {', '.join(topic.written_by)} | "
        f"{', '.join(topic.read_by)} | {topic.purpose} |"
        for topic in ALL
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    for path, text in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
