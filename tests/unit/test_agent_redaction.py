"""R18, R22: secrets that an agent gives back are taken out before anything is recorded."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest

from schemas.agent_response import parse_response
from services.runtime.agents.redaction import REDACTED, Redactor
from services.runtime.tokens import Claims, TokenRefused, Tokens

SECRET = 'Bearer s3cr3t/+"value'
CREDENTIAL = 's3cr3t/+"value'
TOKENS = Tokens("0123456789abcdef")


def token(turn: int) -> str:
    return TOKENS.mint(Claims("s", "r", "j", turn, 1, f"d{turn}", 1_000_000, 2_000_000))


def is_token(text: str) -> bool:
    try:
        TOKENS.open(text, 0)
    except TokenRefused:
        return False
    return True


@pytest.mark.req("R18", "R22")
@pytest.mark.parametrize(
    "secret",
    [
        SECRET, CREDENTIAL, quote(CREDENTIAL, safe=""), json.dumps(CREDENTIAL)[1:-1], token(1),
        token(7),
    ],
    ids=["value", "credential", "percent", "json", "token", "earlier-token"],
)  # fmt: skip
def test_a_secret_is_found_wherever_it_stands_and_however_it_is_spelt(secret: str) -> None:
    text = f"before {secret} after{secret}."
    parsed = parse_response(
        {
            "final_response": text,
            "messages": [
                {
                    "role": "assistant",
                    "content": [{"text": text, secret: 1}],
                    "tool_calls": [
                        {"id": secret, "name": "f", "arguments": f'{{"a": "{secret}"}}'}
                    ],
                    "thinking": [[secret]],
                }
            ],
            "metadata": {"model": secret, "own": {"headers": [secret]}},
        }
    )
    clean = Redactor([SECRET], is_token).response(parsed)
    assert clean.final_response == f"before {REDACTED} after{REDACTED}."
    assert secret not in repr(clean)
    assert json.dumps(secret)[1:-1] not in json.dumps([clean.messages, clean.metadata])
    assert any("final_response, messages, metadata" in warning for warning in clean.soft_warnings)


def test_what_holds_no_secret_is_left_as_it_is() -> None:
    parsed = parse_response(
        {
            "final_response": "gAAAAABis-no-token Bearer",
            "messages": [{"role": "assistant", "content": "Bearer abc"}],
        }
    )
    assert Redactor([SECRET], is_token).response(parsed) == parsed
    assert Redactor([]).text("nothing") == "nothing"
    # Too short to be secrets; replacing them would mangle every answer.
    assert Redactor(["x", "Bearer"]).text("x") == "x"
    assert Redactor(["Token a"]).text("a Token b") == "a Token b"


def test_warnings_quote_nothing() -> None:
    parsed = parse_response(
        {"final_response": "x", "messages": [{"role": "tool", "tool_call_id": token(3)}]}
    )
    assert "gAAAAA" not in parsed.soft_warnings[0]


def test_quotes_are_short_and_printable() -> None:
    redactor = Redactor([SECRET])
    assert redactor.quote(b"\x00\x1b[2Jhi\r\n\xff") == "[2Jhi  \N{REPLACEMENT CHARACTER}"
    assert len(redactor.quote("\N{SNOWMAN}".encode() * 1000).encode()) == 300
    for pad in range(280, 310):
        assert "gAAAAA" not in redactor.quote(b"-" * pad + token(1).encode())
        assert "s3cr" not in redactor.quote(b"-" * pad + SECRET.encode())
