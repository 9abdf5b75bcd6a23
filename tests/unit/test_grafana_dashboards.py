"""D07: the dashboards that are checked in are those of the code, and are whole."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from deploy.grafana.generate import FOLDER, documents
from services.runtime.metrics import CATALOGUE
from tests.support.grafana import sources

pytestmark = pytest.mark.req("D07")
DOCUMENTS = documents()


def board(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DOCUMENTS[name])
    return found


def test_what_is_checked_in_is_what_the_code_makes() -> None:
    assert {path.name: path.read_text() for path in FOLDER.iterdir()} == DOCUMENTS, "make schemas"


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_grafanas_own_types_read_it_without_loss(name: str) -> None:
    document = board(name)
    for panel in document["panels"]:
        # The SDK has no type for the ClickHouse plugin's targets, and would drop them.
        panel["targets"] = [one for one in panel["targets"] if "rawSql" not in one]
    again = json.loads(json.dumps(Dashboard.from_json(document), cls=JSONEncoder))
    assert again["panels"] == document["panels"]
    assert again["templating"] == document["templating"]
    assert again["title"] == document["title"]


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_every_panel_says_what_it_shows_in_which_unit_and_overlaps_none(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    panels = board(name)["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["title"], name
        assert panel["description"].endswith("."), panel["title"]
        assert panel["targets"], panel["title"]
        if panel["type"] in ("timeseries", "barchart"):
            assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert at["x"] + at["w"] <= 24, panel["title"]
        assert not cells & taken, panel["title"]
        taken |= cells


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_variables_that_are_asked_for_are_defined_and_provisioned_sources_used(name: str) -> None:
    document = board(name)
    defined = {one["name"] for one in document["templating"].get("list", ())}
    text = json.dumps([panel["targets"] for panel in document["panels"]])
    text += json.dumps([one["query"] for one in document["templating"].get("list", ())])
    asked = set(re.findall(r"\$\{?([a-z]+)", text)) - {"__from", "__to"}
    assert asked == defined
    uids = set(re.findall(r'"uid": "([^"]+)"', json.dumps(document["panels"])))
    assert uids <= set(sources())


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_promql_asks_for_metrics_that_there_are(name: str) -> None:
    known = {metric.name for metric in CATALOGUE}
    for panel in board(name)["panels"]:
        for target in panel["targets"]:
            for metric in re.findall(
                r"(?<!:)\b(windtunnel_[a-z_]+)\b(?!:)", target.get("expr", "")
            ):
                assert re.sub(r"_(bucket|sum|count)$", "", metric) in known, panel["title"]


def test_there_is_one_for_each_thing_that_people_look_at() -> None:
    titles = {board(name)["title"].partition(" / ")[2] for name in DOCUMENTS}
    assert titles == {
        "Runs", "Scenario explorer", "Load", "Tools and injection", "Cost", "Pipeline health",
    }  # fmt: skip
    assert len({board(name)["uid"] for name in DOCUMENTS}) == len(DOCUMENTS)
