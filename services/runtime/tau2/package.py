"""Importing tau2, which is installed by `make tau2` and otherwise not there.

On import tau2 reads a `.env` file above its own folder into the environment, and logs. Neither
is wanted in a service. Domains and environments need no model client, so none is imported here.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import threading
from typing import Any

_lock = threading.Lock()


class Tau2Missing(Exception):
    """The package is not installed."""

    def __init__(self) -> None:
        super().__init__("tau2 is not installed here: run `make tau2`")


def is_installed() -> bool:
    """Whether tau2 can be imported."""
    return importlib.util.find_spec("tau2") is not None


def tau2(name: str) -> Any:
    """The module `tau2.<name>`.

    Raises:
        Tau2Missing: the package is not installed.
    """
    if not is_installed():
        raise Tau2Missing
    with _lock:
        importlib.import_module("loguru").logger.disable("tau2")
        switch, before = "PYTHON_DOTENV_DISABLED", os.environ.get("PYTHON_DOTENV_DISABLED")
        os.environ[switch] = "1"
        try:
            return importlib.import_module(f"tau2.{name}")
        finally:
            if before is None:
                del os.environ[switch]
            else:
                os.environ[switch] = before
