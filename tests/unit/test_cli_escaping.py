"""What comes from elsewhere cannot act on a terminal, and JSON output is JSON."""

from __future__ import annotations

import json
import math
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from schemas.registry import DeadLetter
from services.cli.escaping import printable, printable_bytes
from services.cli.output import plain


@given(st.text())
def test_nothing_printable_acts_on_a_terminal(text: str) -> None:
    shown = printable(text)
    bad = [c for c in shown if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")]
    assert bad == []
    shown.encode()


def test_colours_and_reordering_are_written_out() -> None:
    assert printable("a\x1b[31mb\u202ec\r\n") == "a\\x1b[31mb\\u202ec\\x0d\\x0a"


def test_newlines_stay_where_asked() -> None:
    assert printable("a\nb\tc", keep_newlines=True) == "a\nb\\x09c"


def test_ordinary_text_of_any_script_stays() -> None:
    text = "Größe 東京 שלום 👩\u200d💻"
    assert printable(text) == text


@given(st.binary(max_size=600))
def test_bytes_are_shown_without_acting(data: bytes) -> None:
    shown = printable_bytes(data)
    assert not any(unicodedata.category(c) in ("Cc", "Cs") for c in shown)
    assert ("more bytes" in shown) == (len(data) > 200)


def test_plain_values_are_json() -> None:
    letter = DeadLetter(
        topic="t", partition=0, offset=1, key=b"\xff", value=b"\x00", service="s", error="e"
    )
    value = plain({"letter": letter, "nan": math.nan, "pair": (1, 2.5, None)})
    decoded = json.loads(json.dumps(value, allow_nan=False))
    assert decoded["letter"]["key"] == "/w=="
    assert decoded["nan"] == "nan"
    assert decoded["pair"] == [1, 2.5, None]
