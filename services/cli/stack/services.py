"""What a stack consists of: the services, how each is started, and how many of each."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from services.cli.errors import CliError

ROOT = Path(__file__).resolve().parents[3]
DEMO_WORLD = "deploy.demo.world:world"
STORE = "embedded_store"
RUNNER = "pipelines_runner"
CONTROL = "control"
TOKEN_SECRET = "WINDTUNNEL_TOKEN_SECRET"
CONTROL_TOKEN = "WINDTUNNEL_CONTROL_TOKEN"
STORE_URL = "WINDTUNNEL_STORE"


@dataclass(frozen=True, slots=True)
class ServiceKind:
    """A service of the stack.

    Attributes:
        private: Settings that hold secrets, and that nobody is given who is not named here.
        needs_store: It is started when the tables are there.
    """

    name: str
    module: str
    private: tuple[str, ...] = ()
    needs_store: bool = False


SERVICES = (
    ServiceKind("dispatcher", "services.dispatcher", (TOKEN_SECRET,)),
    ServiceKind("tool_proxy", "services.tool_proxy", (TOKEN_SECRET,)),
    ServiceKind("user_simulator", "services.user_simulator"),
    ServiceKind("judge", "services.judge"),
    ServiceKind("gate", "services.gate"),
    ServiceKind(CONTROL, "services.control", (CONTROL_TOKEN,)),
    # The store's URL can hold a password.
    ServiceKind(RUNNER, "pipelines.runner", (STORE_URL,), needs_store=True),
)
_NAMES = tuple(service.name for service in SERVICES)
_PRIVATE = frozenset({TOKEN_SECRET, CONTROL_TOKEN, STORE_URL})


def without_private(environ: Mapping[str, str], besides: Sequence[str] = ()) -> dict[str, str]:
    """An environment without the services' secrets, besides some."""
    return {
        name: value for name, value in environ.items() if name not in _PRIVATE or name in besides
    }


@dataclass(frozen=True, slots=True)
class StackOptions:
    """How a stack is to be.

    Attributes:
        broker: embedded, kafka, or external (then with `bootstrap`).
        store: embedded, or a URL as `services.runtime.store.open_store` takes it.
        replicas: By service name; one where not given.
        partitions: Of every topic that is read in shares; at least the most replicas.
        port_base: First of consecutive ports; None takes free ones.
        worlds: What the tool proxy may simulate, as module:attribute.
        environ: The environment of the services, to which the stack adds its own settings.
        ready_deadline_s: How long starting may take.
        wipe: Start without what an earlier stack left in the directory.
    """

    directory: Path
    broker: str = "embedded"
    bootstrap: str = ""
    store: str = "embedded"
    replicas: Mapping[str, int] = field(default_factory=dict)
    partitions: int = 4
    port_base: int | None = None
    worlds: Sequence[str] = (DEMO_WORLD,)
    environ: Mapping[str, str] = field(default_factory=dict)
    kafka_jars: Path = ROOT / ".cache" / "kafka-jars"
    ready_deadline_s: float = 60.0
    wipe: bool = False

    def __post_init__(self) -> None:
        if self.broker not in ("embedded", "kafka", "external"):
            raise CliError(f"--broker {self.broker}: expected embedded, kafka or external")
        if (self.broker == "external") != bool(self.bootstrap):
            raise CliError("--broker external and --bootstrap HOST:PORT belong together")
        if self.store != "embedded" and "://" not in self.store:
            raise CliError("--store: expected embedded, or clickhouse://user:password@host:port/db")
        if self.partitions < 1:
            raise CliError("--partitions: expected at least 1")
        for name, count in self.replicas.items():
            if name not in _NAMES:
                raise CliError(f"--replicas {name}={count}: expected one of {', '.join(_NAMES)}")
            if not 1 <= count <= self.partitions:
                raise CliError(
                    f"--replicas {name}={count}: expected 1 to {self.partitions}, the number of "
                    f"partitions; see --partitions"
                )


def parse_replicas(values: Sequence[str]) -> dict[str, int]:
    """`2` for every service, `judge=2` for one; the later wins.

    Raises:
        CliError: neither.
    """
    found: dict[str, int] = {}
    for value in values:
        name, equals, number = value.rpartition("=")
        if not number.isdigit() or (equals and not name):
            raise CliError(f"--replicas {value}: expected a number, or NAME=number")
        found |= dict.fromkeys([name] if equals else _NAMES, int(number))
    return found


def python(module: str, *arguments: str) -> list[str]:
    """The command line of one of our modules."""
    return [sys.executable, "-m", module, *arguments]


def base_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment in which our modules are found, wherever the stack was started."""
    paths = [str(ROOT), *environ.get("PYTHONPATH", "").split(os.pathsep)]
    return {
        **environ,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "PYTHONUNBUFFERED": "1",
    }
