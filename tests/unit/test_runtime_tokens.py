"""R22: run tokens are opaque, expiring, and useless when anything about them was changed."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.runtime.logs import mask
from services.runtime.tokens import Claims, TokenRefused, Tokens

pytestmark = pytest.mark.req("R22")

CLAIMS = Claims("session-1", "run-1", "jti-1", 1, 1, "d1", issued_at_ms=1000, expires_at_ms=60_000)
TOKENS = Tokens("0123456789abcdef")


def test_a_token_gives_back_its_claims_until_it_expires() -> None:
    token = TOKENS.mint(CLAIMS)
    assert TOKENS.open(token, 59_999) == CLAIMS
    with pytest.raises(TokenRefused, match="expired"):
        TOKENS.open(token, 60_000)


def test_a_token_tells_its_bearer_nothing() -> None:
    token = TOKENS.mint(CLAIMS)
    raw = base64.urlsafe_b64decode(token)
    for part in (b"session-1", b"run-1", b"jti-1"):
        assert part not in raw


def test_another_deployments_secret_does_not_open_it() -> None:
    with pytest.raises(TokenRefused):
        Tokens("fedcba9876543210").open(TOKENS.mint(CLAIMS), 0)
    with pytest.raises(ValueError, match="16 characters"):
        Tokens("short")


@given(st.integers(0, 200), st.integers(1, 255))
def test_a_changed_byte_makes_it_worthless(position: int, change: int) -> None:
    raw = bytearray(base64.urlsafe_b64decode(TOKENS.mint(CLAIMS)))
    raw[position % len(raw)] ^= change
    with pytest.raises(TokenRefused):
        TOKENS.open(base64.urlsafe_b64encode(bytes(raw)).decode(), 0)


@given(st.text(max_size=300))
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(TokenRefused):
        TOKENS.open(text, 0)


def test_no_other_spelling_of_a_token_is_taken() -> None:
    token = TOKENS.mint(CLAIMS)
    for position in range(len(token)):
        for letter in "Ax_-=":
            changed = token[:position] + letter + token[position + 1 :]
            if changed != token:
                with pytest.raises(TokenRefused):
                    TOKENS.open(changed, 0)


def test_truncated_and_swapped_tokens_are_refused_or_open_as_their_own() -> None:
    token = TOKENS.mint(CLAIMS)
    with pytest.raises(TokenRefused):
        TOKENS.open(token[:-5], 0)
    other = TOKENS.mint(replace(CLAIMS, session_id="session-2"))
    assert TOKENS.open(other, 0).session_id == "session-2"


def test_logs_mask_tokens_by_name_and_by_look() -> None:
    token = TOKENS.mint(CLAIMS)
    event = mask(None, "info", {"run_token": token, "jti": "jti-1", "error": f"bad Bearer {token}"})
    assert event == {"run_token": "***", "jti": "jti-1", "error": "bad ***"}
