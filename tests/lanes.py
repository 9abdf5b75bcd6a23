"""Lanes: tests that need something which is not everywhere."""

from __future__ import annotations

import os

import pytest


def require_lane(name: str, available: bool, reason: str) -> None:
    """Skip the test when a lane's means are missing; fail instead in CI (`CI=true`).

    There, a lane that silently never ran would look like a lane that passed.
    """
    if available:
        return
    message = f"lane {name!r} cannot run: {reason}"
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(message, pytrace=False)
    pytest.skip(message)
