"""The report's document: what is inside it, and what can never be."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.cli.report.page import assets, document
from tests.support.report_pages import CONTROLS, HOSTILE, RIGHT_TO_LEFT

texts = st.text() | st.just(HOSTILE) | st.just(CONTROLS) | st.just(RIGHT_TO_LEFT)


class Found(HTMLParser):
    """The elements of a document, and the texts of its scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags:
            self.texts.setdefault(self.tags[-1][0], []).append(data)


def unpacked(page: str, name: str) -> object:
    packed = re.search(rf'<script type="application/gzip" id="{name}">([^<]*)</script>', page)
    assert packed is not None
    return json.loads(gzip.decompress(base64.b64decode(packed[1])))


@pytest.mark.req("D07")
@given(texts, texts)
def test_no_text_of_a_run_is_part_of_the_document(title: str, text: str) -> None:
    """The same elements come out, whatever the texts are; and the texts come out whole."""
    page = "".join(document(title, {"text": text}, [("a", {"more": [text]})]))
    page.encode("utf-8", "surrogatepass")
    found, plain = Found(), Found()
    found.feed(page)
    plain.feed("".join(document("title", {"text": "text"}, [("a", {"more": ["text"]})])))
    assert [tag for tag, _ in found.tags] == [tag for tag, _ in plain.tags]
    assert unpacked(page, "index") == {"text": text}
    assert unpacked(page, "detail-a") == {"more": [text]}


@pytest.mark.req("D07")
def test_the_policy_allows_the_scripts_of_the_page_and_nothing_else() -> None:
    style, script = assets()
    found = Found()
    found.feed("".join(document("x", {}, [])))
    policy = next(attrs["content"] for tag, attrs in found.tags if "http-equiv" in attrs)
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    for text, rule in ((style, "style-src"), (script, "script-src")):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"
    assert rules["default-src"] == rules["connect-src"] == rules["base-uri"] == "'none'"
    assert "unsafe" not in policy
    live = "".join(document("x", {}, [], live=True))
    assert "connect-src 'self'" in live


def test_the_scripts_make_text_and_never_markup() -> None:
    _, script = assets()
    code = re.sub(r"//[^\n]*", "", script)
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(",
                "new Function", "srcdoc", "http://", "https://"):  # fmt: skip
        assert way not in code, way


def test_the_same_run_gives_the_same_file() -> None:
    index = {"b": 1, "a": [1.5, None]}
    assert list(document("x", index, [])) == list(document("x", index, []))
