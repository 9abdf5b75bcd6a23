"""State that is read from a suite's files when it is published; what scenarios say of worlds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import InvalidDocument
from schemas.loader import parse_scenario, scenario_of
from schemas.scenario import Scenario
from services.cli.lint.showing import shown
from services.cli.seeds import MAX_FILE_BYTES
from services.cli.suites import check_scenario, read_suite
from services.tool_proxy.world import World

pytestmark = pytest.mark.req("V05", "S06")

SUITE = 'name: shop\nversion: "1"\nowner: me\n'
CASE = """\
scenario:
  name: A case
  world:
    name: shop
    files: [{files}]
    state: {{orders: {{"1": {{status: late}}}}, gone: null}}
  user:
    goals: [{{say: [Hello], done_when: [bye]}}]
"""


def write(folder: Path, files: dict[str, str | bytes], seeds: str = "") -> Path:
    everything = {"suite.yaml": SUITE, **files}
    if seeds:
        everything["case.yaml"] = CASE.format(files=seeds)
    for name, text in everything.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def published(folder: Path) -> Scenario:
    (entry,) = read_suite(folder).scenarios
    return scenario_of(entry)


def problems(folder: Path) -> list[str]:
    with pytest.raises(InvalidDocument) as error:
        read_suite(folder)
    return [str(problem).removeprefix(f"{folder}/") for problem in error.value.problems]


def test_files_become_state_under_the_scenarios_own(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "seeds/orders.json": '{"orders": {"1": {"status": "open", "total": 5}}, "mails": [1]}',
            "seeds/more.yaml": "orders: {'2': {status: new}}\nmails: [2]\n",
            "seeds/customers.csv": "id,name,city\nc1,Ann,Oslo\nc2,Bo,\n",
            "seeds/project/src/main.py": "print(1)\n",
            "seeds/project/config.yaml": "scenario: {name: not one}\n",
        },
        "seeds/orders.json, seeds/more.yaml, seeds/customers.csv, seeds/project",
    )
    world = published(tmp_path).world
    assert world is not None
    assert world.files == ()
    assert json.loads(json.dumps(world.state)) == {
        "orders": {"1": {"status": "late", "total": 5}, "2": {"status": "new"}},
        "mails": [2],
        "gone": None,
        "tables": {"customers": {"c1": {"id": "c1", "name": "Ann", "city": "Oslo"},
                                 "c2": {"id": "c2", "name": "Bo"}}},
        "files": {"src/main.py": "print(1)\n", "config.yaml": "scenario: {name: not one}\n"},
    }  # fmt: skip
    check_scenario(tmp_path / "case.yaml")


def test_a_suites_hash_is_that_of_what_was_read(tmp_path: Path) -> None:
    write(tmp_path, {"orders.json": '{"orders": {}}'}, "orders.json")
    before = read_suite(tmp_path).suite_hash
    write(tmp_path, {"orders.json": '{"orders": {"9": {}}}'})
    assert read_suite(tmp_path).suite_hash != before
    write(tmp_path, {"orders.json": '{"orders":   {}}'})
    assert read_suite(tmp_path).suite_hash == before


def test_defaults_may_name_files_that_are_no_scenarios(tmp_path: Path) -> None:
    suite = f"{SUITE}defaults: {{world: {{name: shop, files: [state/base.yaml]}}}}\n"
    case = "scenario: {name: A case, user: {goals: [{say: [Hi], done_when: [bye]}]}}\n"
    write(tmp_path, {"suite.yaml": suite, "case.yaml": case, "state/base.yaml": "orders: {}\n"})
    world = published(tmp_path).world
    assert world is not None
    assert world.state == {"orders": {}}


@pytest.mark.parametrize(
    ("files", "seeds", "complaint"),
    [
        ({}, "a.json", "case.yaml:5:13: scenario.world.files[0]: a.json: there is no such file"),
        ({}, "../a.json", "case.yaml:5:13: scenario.world.files[0]: ../a.json: expected a path wi"),
        ({}, "/etc/hosts", "case.yaml:5:13: scenario.world.files[0]: /etc/hosts: expected a path "),
        ({"a.txt": "x"}, "a.txt", "scenario.world.files[0]: a.txt: expected a folder, or a file"),
        ({"a.json": '{"x":\n  oops}'}, "a.json", "a.json:2:3: (top): expected JSON"),
        ({"a.json": "[1]"}, "a.json", "a.json:1:1: (top): expected an object"),
        ({"a.yaml": "x: 1\nx: 2\n"}, "a.yaml", "a.yaml:2:1: x"),
        ({"t.csv": "id,n\n1,2\n1,3\n"}, "t.csv", "t.csv:3: id: expected a id of its own"),
        ({"t.csv": "id,n\n1,2,3\n"}, "t.csv", "t.csv:2: (top): expected 2 columns, found 3"),
        ({"t.csv": "id,id\n1,2\n"}, "t.csv", "t.csv:1:1: (top): expected a name for each column"),
        ({"d/a": b"\xff\xfe"}, "d", "scenario.world.files[0]: d: "),
        ({"a.json": '{"x": "' + "y" * MAX_FILE_BYTES + '"}'}, "a.json", "larger than"),
        ({f"{n}.json": json.dumps({f"x{n}": "y" * 600_000}) for n in "ab"}, "a.json, b.json",
         "case.yaml:5:12: scenario.world.files: expected at most 1048576 bytes of state"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_used_is_told_with_its_place(
    tmp_path: Path, files: dict[str, Any], seeds: str, complaint: str
) -> None:
    folder = write(tmp_path, files, seeds)
    (problem,) = problems(folder)
    assert complaint in problem
    with pytest.raises(InvalidDocument) as error:
        check_scenario(folder / "case.yaml")
    assert complaint.split(": ")[-1] in str(error.value)


def test_links_do_not_lead_out_of_the_suite(tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text("{}")
    folder = write(tmp_path / "suite", {"d/x": "1"}, "a.json, d")
    (folder / "a.json").symlink_to(tmp_path / "secret.json")
    (folder / "d/y").symlink_to(tmp_path / "secret.json")
    first, second = problems(folder)
    assert "leads out" in first
    assert "y is a link" in second


def test_every_file_that_cannot_be_used_is_told_at_once(tmp_path: Path) -> None:
    write(tmp_path, {"a.json": "{", "b.csv": "id\n1\n1\n"}, "a.json, b.csv, c.json")
    assert len(problems(tmp_path)) == 3


def scenario(world: str, **more: str) -> Scenario:
    text = f"scenario:\n  name: A case\n  world: {world}\n" + "".join(
        f"  {name}: {value}\n" for name, value in more.items()
    )
    return parse_scenario(text, "case.yaml")


@pytest.mark.parametrize(
    ("world", "complaint"),
    [
        ("{}", "give the `name` of a world"),
        ("{name: shop, briefing: A shop.}", "only a model reads a briefing"),
        ("{answers: schema, state: {a: 1}}", "made-up answers know of no state"),
        ("{answers: schema, files: [a.json]}", "made-up answers know of no state"),
        ("{name: shop, now: tomorrow}", "expected a time such as"),
        ("{name: shop, call_takes: 5 minutes}", "world.call_takes"),
        ("{name: shop, answers: nobody}", "world.answers"),
    ],
)
def test_what_does_not_go_together_is_refused(world: str, complaint: str) -> None:
    with pytest.raises(InvalidDocument, match=complaint):
        scenario(world)


def test_a_variations_clock_is_checked_as_well() -> None:
    with pytest.raises(InvalidDocument, match="expected a time such as"):
        scenario("{name: shop}", variations="[{name: late, now: soon}]")


def test_show_tells_who_answers_and_how_time_passes() -> None:
    made = shown(scenario("{answers: schema, turn_takes: 5m, call_takes: 30s}"))
    assert "no world at 2026-01-15T09:00:00Z: answers made up from output schemas" in made
    assert "in its time each turn takes 5m and each call takes 30s" in made
    both = shown(scenario("{name: shop, answers: model, briefing: A  shop.}"))
    assert "world shop at 2026-01-15T09:00:00Z: a model that answers for what it has not" in both
    assert "the model is told: A shop." in both
    assert "  world shop at 2026-01-15T09:00:00Z\n" in shown(scenario("{name: shop}"))


def test_a_published_scenario_fits_the_world_it_is_for(tmp_path: Path) -> None:
    import random
    from datetime import UTC, datetime

    table = "CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, vip BOOLEAN DEFAULT 0)"
    world = World("shop", {"orders": {}}, database=table, files={})
    write(tmp_path, {"customers.csv": "id,name,vip\n7,Ann,1\n8,Bo,\n", "d/x": "1"},
          "customers.csv, d")  # fmt: skip
    setup = published(tmp_path).world
    assert setup is not None
    state = world.seeded(setup.state, datetime(2026, 1, 1, tzinfo=UTC), random.Random(1))
    assert state["tables"]["customers"] == {
        "7": {"id": 7, "name": "Ann", "vip": True}, "8": {"id": 8, "name": "Bo", "vip": False},
    }  # fmt: skip
    assert (state["files"], state["orders"]) == ({"x": "1"}, {"1": {"status": "late"}})
