"""Run tokens: opaque, expiring, and useless for any session but their own.

A token is a Fernet message (AES-CBC and HMAC-SHA256, verified in constant time) over its
claims, keyed from a secret that dispatcher and tool proxy share. An agent can neither read nor
forge one. The jti may be logged; the token never is.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import asdict, dataclass

import orjson
from cryptography.fernet import Fernet, InvalidToken


class TokenRefused(Exception):
    """The token is not one of ours, was damaged, or has expired. Says nothing about its content."""


@dataclass(frozen=True, slots=True)
class Claims:
    """What a run token says about the posting it was made for."""

    session_id: str
    run_id: str
    jti: str
    turn: int
    conversation: int
    dispatch_id: str
    issued_at_ms: int
    expires_at_ms: int


class Tokens:
    """Makes and opens run tokens. Thread-safe."""

    def __init__(self, secret: str) -> None:
        if len(secret) < 16:
            raise ValueError("the token secret needs at least 16 characters")
        key = hashlib.blake2b(secret.encode(), digest_size=32, person=b"windtunnel.token").digest()
        self._fernet = Fernet(base64.urlsafe_b64encode(key))

    def mint(self, claims: Claims) -> str:
        """The token for these claims."""
        payload = orjson.dumps(asdict(claims))
        return self._fernet.encrypt_at_time(payload, claims.issued_at_ms // 1000).decode()

    def open(self, token: str, now_ms: int) -> Claims:
        """The claims of a token.

        Raises:
            TokenRefused: forged, damaged, from another deployment, or expired.
        """
        try:
            # Base64 has several spellings of the same bytes; only the one we gave out is taken.
            if base64.urlsafe_b64encode(base64.urlsafe_b64decode(token)).decode() != token:
                raise ValueError
            claims = Claims(**orjson.loads(self._fernet.decrypt(token.encode())))
        except (InvalidToken, ValueError, TypeError):
            raise TokenRefused("the run token is not valid") from None
        if now_ms >= claims.expires_at_ms:
            raise TokenRefused("the run token has expired")
        return claims
