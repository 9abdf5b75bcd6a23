"""A share of the proxy's fuzzing; the whole of it is `python -m tests.fuzz.proxy`."""

from __future__ import annotations

import pytest

from tests.fuzz.client import Wrong, check
from tests.fuzz.proxy import fuzz


@pytest.mark.req("R02", "R07", "R08", "R22")
def test_nothing_raw_upsets_the_proxy() -> None:
    report = fuzz(4_000, "pytest")
    assert report.wrong == []
    assert report.requests >= 4_000
    met = {code for _, _, code in report.counts}
    expected = {"", "token_invalid", "body_invalid", "body_too_large", "path_unknown", "not HTTP",
                "method_not_allowed", "trace_invalid", "log_unavailable", "rate_limited",
                "body_encoding_unsupported", "actor_id_invalid", "arguments_invalid",
                "tool_call_limit"}  # fmt: skip
    assert met >= expected
    assert report.events > 500


@pytest.mark.parametrize(
    ("status", "media", "body"),
    [
        (500, "text/plain", b"Internal Server Error"),
        (500, "application/json", b'{"error": {"code": "new", "retryable": false}}'),
        (503, "application/json", b'{"error": {"code": "internal_error", "retryable": false}}'),
        (503, "application/json", b'{"error": {"code": "overloaded", "retryable": false}}'),
        (307, "text/html", b""),
        (200, "application/json", b'{"accepted": true}'),
    ],
)
def test_the_fuzzer_notices(status: int, media: str, body: bytes) -> None:
    with pytest.raises(Wrong):
        check(status, {"content-type": media}, body)
