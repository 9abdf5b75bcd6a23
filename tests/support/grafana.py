"""The dashboards' queries, as Grafana would send them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

GRAFANA = Path(__file__).resolve().parents[2] / "deploy" / "grafana"


def sources() -> dict[str, str]:
    """The provisioned data sources: type by uid."""
    text = (GRAFANA / "provisioning" / "datasources" / "windtunnel.yml").read_text()
    return {one["uid"]: one["type"] for one in yaml.safe_load(text)["datasources"]}


def boards() -> Iterator[dict[str, Any]]:
    """The dashboards that are checked in."""
    for path in sorted((GRAFANA / "dashboards").glob("*.json")):
        yield json.loads(path.read_text())


def promql() -> Iterator[tuple[str, str]]:
    """Every PromQL query, and where it stands."""
    for board in boards():
        for panel in board["panels"]:
            for target in panel["targets"]:
                if "expr" in target:
                    yield f"{board['title']} / {panel['title']}", target["expr"]


def sql(variables: Mapping[str, list[str]]) -> Iterator[tuple[str, str]]:
    """Every SQL query - of panels, variables and annotations - with the variables put in, over all
    of time."""
    for board in boards():
        texts = [
            (panel["title"], target["rawSql"])
            for panel in board["panels"]
            for target in panel["targets"]
            if "rawSql" in target
        ]
        texts += [
            (f"variable {one['name']}", one["query"]["rawSql"])
            for one in board["templating"].get("list", ())
        ]
        texts += [
            (f"annotation {one['name']}", one["target"]["rawSql"])
            for one in board["annotations"]["list"]
        ]
        for title, text in texts:
            yield f"{board['title']} / {title}", interpolated(text, variables)


def interpolated(text: str, variables: Mapping[str, list[str]]) -> str:
    """A query as Grafana interpolates it."""
    text = text.replace("$__from", "0").replace("$__to", "99999999999999")
    for name, values in variables.items():
        quoted = ", ".join(f"'{value}'" for value in values)
        text = text.replace(f"${{{name}:singlequote}}", quoted).replace(f"${name}", values[0])
    assert "$" not in text, text
    return text
