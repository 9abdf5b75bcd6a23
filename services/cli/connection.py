"""Where the broker and the store are: options, else the environment, else the running stack."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from schemas.codec import Codec
from services.cli.errors import CliError
from services.cli.stack.directory import StackDirectory
from services.runtime.registry import codec_for
from services.runtime.settings import Settings, load_settings
from services.runtime.store.interface import Store
from services.runtime.store.opening import open_store

_BOOTSTRAP, _STORE, _CONFIG = "WINDTUNNEL_BOOTSTRAP", "WINDTUNNEL_STORE", "WINDTUNNEL_CONFIG"
_STORE_DEADLINE_S = 10.0


@dataclass(frozen=True, slots=True)
class Where:
    """What the user said about where things are."""

    directory: Path
    bootstrap: str = ""
    store: str = ""

    def environ(self, environ: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment, completed from the stack that runs in the directory."""
        given = dict(os.environ if environ is None else environ)
        if self.bootstrap:
            given[_BOOTSTRAP] = self.bootstrap
        if self.store:
            given[_STORE] = self.store
        info = StackDirectory(self.directory).read_info()
        if info is None:
            return given
        # The stack's own options fit its own broker only.
        if _BOOTSTRAP in given or _CONFIG in given:
            stack = {name: value for name, value in info.environ.items() if name == _STORE}
        else:
            stack = dict(info.environ)
        return {**stack, **given}


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach the broker, and the codec of its records."""

    settings: Settings
    codec: Codec


def connect(where: Where) -> Connection:
    """The connection that the user means.

    Raises:
        CliError: nothing says where the broker is.
        ConfigurationError: what says so is wrong.
    """
    environ = where.environ()
    if _BOOTSTRAP not in environ and _CONFIG not in environ:
        raise CliError(
            f"no stack is running in {where.directory}: start one with `windtunnel up`, or say "
            f"where the broker is with --bootstrap or {_BOOTSTRAP}"
        )
    settings = load_settings(Settings, environ)
    return Connection(settings, codec_for(settings))


def open_the_store(where: Where) -> Store:
    """The store that the user means; the caller closes it.

    Raises:
        CliError: nothing says where it is.
        StoreRejected: the URL cannot be read.
    """
    url = where.environ().get(_STORE, "")
    if not url:
        raise CliError(
            f"no stack is running in {where.directory}: start one with `windtunnel up`, or say "
            f"where the store is with --store or {_STORE}"
        )
    return open_store(url, deadline_s=_STORE_DEADLINE_S)
