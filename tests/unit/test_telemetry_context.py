"""D07: ids of traces and spans, and what is made of the traceparents that agents send."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.trace import get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from services.runtime.telemetry_context import (
    FOREIGN,
    JOINED,
    MALFORMED,
    UNSAMPLED,
    accept,
    session_event,
    span_id,
    trace_id,
    traceparent,
    turn_event,
)

pytestmark = pytest.mark.req("D07")
SESSION = "5e55"
TRACE = f"{trace_id(SESSION):032x}"
SPAN = "00f067aa0ba902b7"
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def test_ids_stay_what_they_are() -> None:
    # Written down: services of different releases must name the same spans.
    assert f"{trace_id('5e55'):032x}" == "7983a28b41d39333494c0f9cc4a4adba"
    assert f"{span_id('5e55:a1'):016x}" == "716921f7fe509501"


@given(texts, st.integers(1, 10**6))
def test_ids_are_hashes_within_their_bounds(session: str, turn: int) -> None:
    assert 0 < trace_id(session) < 2**128
    assert 0 < span_id(turn_event(session, turn)) < 2**64
    assert trace_id(session) == trace_id(session)
    assert span_id(turn_event(session, turn)) != span_id(session_event(session))
    assert span_id(turn_event(session, turn)) != span_id(turn_event(session, turn + 1))


@given(texts, st.integers(1, 10**6))
def test_what_agents_are_given_is_read_by_others_and_accepted_back(session: str, turn: int) -> None:
    header = traceparent(session, turn)
    assert re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-01", header)
    read = TraceContextTextMapPropagator().extract({"traceparent": header})
    context = get_current_span(read).get_span_context()
    assert (context.trace_id, context.span_id) == (
        trace_id(session), span_id(turn_event(session, turn)),
    )  # fmt: skip
    assert context.trace_flags.sampled
    assert accept([header], session) == (JOINED, context.span_id)


@pytest.mark.parametrize(
    ("header", "outcome"),
    [
        (f"00-{TRACE}-{SPAN}-01", JOINED),
        (f" 00-{TRACE}-{SPAN}-03\t", JOINED),
        (f"01-{TRACE}-{SPAN}-01", JOINED),
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-brings", JOINED),
        (f"00-{TRACE}-{SPAN}-00", UNSAMPLED),
        (f"00-{TRACE}-{SPAN}-02", UNSAMPLED),
        (f"00-{'1' * 32}-{SPAN}-01", FOREIGN),
        (f"00-{'1' * 32}-{SPAN}-00", FOREIGN),
        (f"00-{TRACE}-{SPAN}-01-more", MALFORMED),
        (f"cc-{TRACE}-{SPAN}-01.more", MALFORMED),
        (f"ff-{TRACE}-{SPAN}-01", MALFORMED),
        (f"00-{TRACE.upper()}-{SPAN.upper()}-01", MALFORMED),
        (f"00-{'0' * 32}-{SPAN}-01", MALFORMED),
        (f"00-{TRACE}-{'0' * 16}-01", MALFORMED),
        (f"00-{TRACE}-{SPAN}-1", MALFORMED),
        (f"00-{TRACE}-{SPAN[1:]}-01", MALFORMED),
        (f"0-{TRACE}-{SPAN}-01", MALFORMED),
        (f"00-{TRACE}-{SPAN}-01\n", MALFORMED),
        (f"cc-{TRACE}-{SPAN}-01-" + "x" * 10_000, MALFORMED),
        ("", MALFORMED),
        ("00", MALFORMED),
    ],
)
def test_traceparents(header: str, outcome: str) -> None:
    found, parent = accept([header], SESSION)
    assert found == outcome
    assert (parent is not None) == (outcome == JOINED)


def test_more_than_one_are_none() -> None:
    assert accept([f"00-{TRACE}-{SPAN}-01"] * 2, SESSION) == (MALFORMED, None)


@given(st.lists(st.text(max_size=80), min_size=1, max_size=3))
def test_nothing_that_is_sent_is_an_error(values: list[str]) -> None:
    outcome, parent = accept(values, SESSION)
    assert outcome in (MALFORMED, FOREIGN, UNSAMPLED, JOINED)
    assert (parent is None) == (outcome != JOINED)


@given(st.binary(min_size=16, max_size=16), st.binary(min_size=8, max_size=8), st.integers(0, 255))
def test_only_the_sessions_own_trace_is_joined(trace: bytes, span: bytes, flags: int) -> None:
    header = f"00-{trace.hex()}-{span.hex()}-{flags:02x}"
    outcome, _ = accept([header], SESSION)
    assert (outcome == JOINED) == (trace.hex() == TRACE and any(span) and flags & 1 == 1)
