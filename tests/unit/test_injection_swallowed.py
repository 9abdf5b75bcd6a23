"""A tool module that is edited so that failures get lost makes sessions invalid, never passed."""

from __future__ import annotations

import inspect
import sys
from types import ModuleType
from typing import Any

import pytest

from services.tool_proxy import injection, recording, rules
from tests.support.injected import KINDS, LOOKUP, brief_with, play, why_invalid

pytestmark = pytest.mark.req("V06")

RANDOM = [{"id": f"a-{k}", "kind": k, "probability": 0.05, **KINDS[k]} for k in KINDS]


def edit(patch: pytest.MonkeyPatch, module: ModuleType, old: str, new: str) -> None:
    """Have a module do what an edited copy of its source does."""
    source = inspect.getsource(module)
    assert source.count(old) == 1, "the edit must hit the source as it is"
    copy = ModuleType(module.__name__)
    with pytest.MonkeyPatch.context() as meanwhile:
        # Dataclasses look for their module while they are made.
        meanwhile.setitem(sys.modules, module.__name__, copy)
        exec(compile(source.replace(old, new), "edited", "exec"), vars(copy))
    for name, value in vars(copy).items():
        if getattr(value, "__module__", "") == module.__name__:
            patch.setattr(module, name, value)


def verdict(failures: list[dict[str, Any]], seed: int = 3) -> str:
    brief = brief_with(failures, seed=seed)
    return why_invalid(play(brief, [LOOKUP] * 60), failures, brief)


def test_as_it_is_every_session_counts() -> None:
    assert verdict(RANDOM) == ""
    for kind, fields in KINDS.items():
        assert verdict([{"id": "f", "kind": kind, "calls": [2], **fields}]) == ""


@pytest.mark.parametrize(
    ("module", "old", "new", "why"),
    [
        (rules, "            if is_failure:\n                failure = index",
         "            if is_failure:\n                pass", "nothing was injected"),
        (rules, "brief.failure_multiplier, ordinal)", "0.5 * brief.failure_multiplier, ordinal)",
         "nothing was injected"),
        (rules, "selector, key, brief.seed,", "selector, key, brief.seed + 1,", "was due on"),
        (rules, "matched[index] + 1, struck[index]", "matched[index] + 2, struck[index]",
         "not planned there"),
        (recording, "injection=outcome.injection,", "injection=None,", "nothing was injected"),
        (recording, "latency_ms=latency_ms,", "latency_ms=0,", "the answer came after 0 of"),
        (recording, "response=outcome.response,", "response='{\"id\":\"2\"}',", "the answer is no"),
        (injection, 'return Struck({"error": error}, detail)',
         'return Struck({"id": "2"}, detail)', "the answer is no"),
        (injection, "text[: max(1, len(text) * 2 // 3)]", "text", "can be read as JSON"),
        (injection, 'place.value = f"{text}\\n{failure.content}" if isinstance(text, str) else '
         "failure.content", "pass", "without its text"),
        (injection, 'del items[count // 2 :]\n    return Struck(answer, f"kept {len(items)} of',
         'return Struck(answer, f"kept {count // 2} of', "the answer is not as told"),
    ],
)  # fmt: skip
def test_an_edited_module_makes_sessions_invalid(
    module: ModuleType, old: str, new: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(monkeypatch, module, old, new)
    reasons = [verdict(RANDOM, seed) for seed in range(3)]
    reasons += [
        verdict([{"id": "f", "kind": kind, "probability": 0.3, **KINDS[kind]}]) for kind in KINDS
    ]
    assert any(why in reason for reason in reasons), reasons


def test_failures_that_never_reach_the_proxy_are_missed() -> None:
    brief = brief_with([], seed=3)
    reason = why_invalid(play(brief, [LOOKUP] * 60), RANDOM, brief)
    assert "was due on" in reason
    assert "and nothing was injected" in reason
