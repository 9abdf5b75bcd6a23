"""Each thing that openevals and agentevals do and one would not expect, as an example.

Every row is checked against the packages themselves and against our profiles; the numbers are
those of docs/trajectory-matching.md.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from services.judge.matching import InvalidOptions, MatcherFailed, PackageRaises, match
from tests.support.matching_strategies import MODES, PACKAGES, RAISES, ours, theirs

pytestmark = pytest.mark.req("P07")
OPEN, AGENT = PACKAGES
NAN = float("nan")
YES, NO = [True] * 4, [False] * 4
ERROR = [RAISES] * 4
DOCUMENT = Path(__file__).parents[2] / "docs" / "trajectory-matching.md"


def call(tool: str = "get", arguments: Any = None, **more: Any) -> dict[str, Any]:
    given = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return {"id": "c", "function": {"name": tool, "arguments": given}, **more}


def ai(*calls: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": list(calls), **more}


def blocks(*content: Any, role: str = "assistant") -> dict[str, Any]:
    return {"role": role, "content": list(content)}


SMALL, LARGE = [ai(call(arguments={"x": 1}))], [ai(call(arguments={"x": 1, "y": 2}))]
GET = [ai(call())]
FIRST_COME = [ai(call(arguments={"x": 1}), call(arguments={"x": 1, "y": 2}))]
LAST_COME = [ai(call(arguments={"x": 1, "y": 2}), call(arguments={"x": 1}))]


def one_sided(actual: Any, reference: Any) -> bool:
    return "y" in actual and "y" not in reference


# Number of the quirk, actual, reference, options, results of openevals and of agentevals for
# strict, unordered, subset and superset.
QUIRKS: list[tuple[str, Any, Any, dict[str, Any], list[Any], list[Any]]] = [
    ("1", SMALL, LARGE, {"arguments": "subset"}, YES, [True, False, False, True]),
    ("1", LARGE, SMALL, {"arguments": "subset"}, NO, [False, False, True, False]),
    ("1", LARGE, SMALL, {"own": {"get": one_sided}}, YES, [True, False, False, True]),
    ("2", GET, GET, {"own": {"get": ["x"]}}, NO, YES),
    ("2", [ai(call(arguments={"x": None}))], GET, {"own": {"get": ["x"]}}, NO, YES),
    ("2", SMALL, LARGE, {"own": {"get": ["x"]}}, YES, YES),
    # x alone fits both, and takes the one that x and y would need.
    ("3", FIRST_COME, FIRST_COME, {"arguments": "subset"}, YES, YES),
    ("3", FIRST_COME, LAST_COME, {"arguments": "subset"},
     NO, [False, False, True, False]),
    ("4", GET, [{"role": "user", "content": "Hi."}, *GET], {}, [False, True, True, True],
     [False, True, True, True]),
    ("4", [ai(call(), content="a")], [ai(call(), content="b")], {}, YES, YES),
    ("5", [ai(call("get"), call("put"))], [ai(call("put"), call("get"))], {}, YES, YES),
    ("5", [ai(call("get")), ai(call("put"))], [ai(call("get"), call("put"))], {},
     [False, True, True, True], [False, True, True, True]),
    ("6", None, None, {}, YES, YES),
    ("6", None, GET, {}, [False, False, True, False], [False, False, True, False]),
    ("7", SMALL, [ai(call(arguments={"x": True}))], {}, YES, YES),
    ("7", SMALL, [ai(call(arguments={"x": 1.0}))], {}, YES, YES),
    ("8", [ai(call(arguments={"x": NAN}))], [ai(call(arguments={"x": NAN}))], {}, YES, YES),
    ("8", [ai(call(arguments={"x": NAN}))], [ai(call(arguments={"x": NAN}))],
     {"arguments": "superset"}, NO, NO),
    ("9", SMALL, GET, {"own": {"get": "exakt"}}, YES, YES),
    ("10", SMALL, GET, {"own": {"get": []}}, NO, NO),
    ("10", SMALL, GET, {"own": {"get": []}, "arguments": "ignore"}, YES, YES),
    ("11", SMALL, SMALL, {"own": {"get": ("x",)}}, ERROR, ERROR),
    ("11", SMALL, SMALL, {"own": {"put": ("x",)}}, YES, YES),
    ("11", SMALL, [ai(call("put"))], {"own": {"get": ("x",)}}, NO, NO),
    ("12", [ai(call(arguments="{"))], GET, {}, ERROR, ERROR),
    ("12", [ai(call(arguments="[1]"))], [], {}, ERROR, ERROR),
    ("12", [ai(call(arguments=""))], GET, {}, ERROR, ERROR),
    ("12", [ai(call(arguments='{"x": "\n"}'))], [ai(call(arguments={"x": "\n"}))], {}, YES, YES),
    ("13", [ai(additional_kwargs={"tool_calls": [call()]})], GET, {}, YES, YES),
    ("13", [ai(additional_kwargs={"tool_calls": [call(arguments="{")]})], [ai()], {}, YES, YES),
    ("14", [blocks({"type": "tool_use", "id": "c", "name": "get", "input": {}})], GET, {}, YES,
     YES),
    ("14", [blocks({"type": "tool_use", "id": "c", "name": "get", "input": {}}, role="user")],
     GET, {}, ERROR, ERROR),
    ("14", [blocks({"type": "function_call", "call_id": "c", "name": "get", "arguments": {}})],
     GET, {}, [True, RAISES, RAISES, RAISES], [True, RAISES, RAISES, RAISES]),
    ("14", [blocks({"foo": 1})], [], {}, ERROR, ERROR),
    ("15", [blocks(*[{"type": "tool_result", "tool_use_id": i, "content": ""} for i in "ab"],
                   role="user")],
     [{"role": "tool"}], {}, YES, YES),
    ("16", [{"type": "ai", "data": {"tool_calls": [call()]}}], [ai()], {}, YES, YES),
    ("16", [{"type": "ai", "content": "", "tool_calls": [{"name": "get", "args": {}}]}], GET, {},
     ERROR, ERROR),
    ("16", [{"role": "ai", "content": "", "tool_calls": [{"name": "get", "args": {}}]}], GET, {},
     YES, YES),
    ("17", [{"role": "user", "content": "", "tool_calls": [call()]}], [{"role": "human"}], {},
     YES, YES),
    ("18", [{"role": "function", "content": "", "name": ""}], [{"role": "function", "name": "f"}],
     {}, [RAISES, True, True, True], [RAISES, True, True, True]),
    ("18", [{"lc": 1, "type": "constructor", "id": ["AIMessage"], "kwargs": ai(call())}], GET, {},
     [RAISES, True, True, True], [RAISES, True, True, True]),
    ("19", (ai(call()),), GET, {}, ERROR, ERROR),
    ("19", {"type": "ai", "content": ""}, [], {}, ERROR, ERROR),
    ("19", ["Hello."], [], {}, ERROR, ERROR),
    ("19", [{"role": "chat", "content": ""}], [], {}, ERROR, ERROR),
    ("19", [{"role": "developer", "content": ""}], [{"role": "system"}], {},
     [False, True, True, True], [False, True, True, True]),
    ("20", [ai(call(index=0))], GET, {}, YES, YES),
    ("20", [ai({"name": "get", "args": {}, "id": "c", "index": 0})], GET, {}, ERROR, ERROR),
]  # fmt: skip


@pytest.mark.parametrize(
    ("number", "actual", "reference", "options", "openevals", "agentevals"),
    QUIRKS,
    ids=[f"{row[0]}-{index}" for index, row in enumerate(QUIRKS)],
)
def test_quirk(
    number: str, actual: Any, reference: Any, options: Any, openevals: Any, agentevals: Any
) -> None:
    arguments, own = options.get("arguments", "exact"), options.get("own")
    for profile, expected in ((OPEN, openevals), (AGENT, agentevals)):
        real = [theirs(profile, actual, reference, m, arguments, own) for m in MODES]
        assert real == expected, f"{profile} itself does not have quirk {number}"
        assert [ours(profile, actual, reference, m, arguments, own) for m in MODES] == expected


def test_every_quirk_is_documented_and_every_documented_one_has_an_example() -> None:
    lines = DOCUMENT.read_text().splitlines()
    documented = {line.partition(".")[0] for line in lines if line.partition(".")[0].isdigit()}
    assert documented == {row[0] for row in QUIRKS}


def test_greedy_pairing_misses_a_match_that_the_own_profile_finds() -> None:
    for mode in MODES:
        assert match(FIRST_COME, LAST_COME, mode=mode, arguments="subset").matched


def test_agentevals_changes_its_input_and_the_profile_does_not() -> None:
    message: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [call()]}
    del message["tool_calls"][0]["id"]
    match([message], [message], mode="strict", profile="agentevals-0.0.9")
    assert message["content"] is None
    assert "id" not in message["tool_calls"][0]
    PACKAGES[AGENT](trajectory_match_mode="strict")(outputs=[message], reference_outputs=[message])
    assert message["content"] == ""


def test_message_objects_of_langchain_are_read_without_it() -> None:
    message = AIMessage("", tool_calls=[{"name": "get", "args": {"x": 1}, "id": "c"}])
    for profile in ("windtunnel", OPEN, AGENT):
        assert match([message], SMALL, mode="strict", profile=profile).matched
        assert not match([message], LARGE, mode="strict", profile=profile).matched


def test_where_the_package_raises_the_error_names_it_and_the_reason() -> None:
    with pytest.raises(PackageRaises, match=r"openevals-0\.2\.2 raises .*no object") as caught:
        match([ai(call(arguments="[1]"))], GET, mode="superset", profile="openevals-0.2.2")
    assert caught.value.profile == OPEN


def test_a_matcher_that_raises_is_told_apart_from_the_package() -> None:
    def broken(actual: Any, reference: Any) -> bool:
        raise RuntimeError

    for profile in ("windtunnel", OPEN, AGENT):
        with pytest.raises(MatcherFailed, match="get raised RuntimeError"):
            match(GET, GET, mode="superset", overrides={"get": broken}, profile=profile)


@pytest.mark.parametrize(
    "options",
    [{"mode": "ordered"}, {"arguments": "equal"}, {"profile": "agentevals-0.0.8"}],
)
def test_unknown_options_are_refused_in_every_profile(options: Any) -> None:
    for profile in ("windtunnel", OPEN, AGENT):
        given = {"mode": "strict", "profile": profile, **options}
        with pytest.raises(InvalidOptions):
            match([], [], **given)


def test_a_profile_says_where_the_package_stopped() -> None:
    found = match(
        [ai(call("get"), call("get"))],
        [ai(call("get"))],
        mode="unordered",
        profile="openevals-0.2.2",
    )
    assert not found.matched
    assert [(pair.actual, pair.reference) for pair in found.pairs] == [(0, 0)]
    assert [extra.actual for extra in found.extra] == [1]
    assert "no reference call is left for call 2, get()" in found.explanation
