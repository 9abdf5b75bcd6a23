"""Starting a Kafka broker as a child process: which broker it is, is known here and nowhere
else.
"""

from __future__ import annotations

import base64
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Protocol

from kafka import KafkaAdminClient

from services.runtime.bus.connecting import connected

_HOST = "127.0.0.1"
_MIN_FREE_BYTES = 200 * 1024 * 1024
_PR_SET_PDEATHSIG = 1
_TEMPLATE = Path(__file__).resolve().parents[3] / "deploy" / "kafka" / "server.properties"


class BrokerError(Exception):
    """A broker could not be started; the message names the fix."""


class BrokerMissing(BrokerError):
    """Its program is not installed."""


class BrokerFailed(BrokerError):
    """It was started and did not become ready, or could not be started here."""


class Broker(Protocol):
    """A broker on this machine, owned by whoever started it."""

    @property
    def name(self) -> str:
        """What to call it in output."""

    @property
    def bus_options(self) -> Mapping[str, int]:
        """What clients need to know of this broker: overrides of `BusSettings` fields."""

    def start(self) -> str:
        """Start and wait until it answers; blocks up to the start deadline. Returns the
        bootstrap address. Raises BrokerError. Starting a running broker returns its address. On
        Linux the child dies with the *thread* that called this: call it from one that lives as
        long as the broker should.
        """

    def stop(self) -> None:
        """Terminate, then kill; blocks up to the stop deadline. Does nothing when not running.
        What was acknowledged stays on disk, and `start` on the same directory and port serves it
        again.
        """


class _ChildBroker:
    """What the launchers share: a child with a log file, a port and a directory."""

    name = "broker"
    bus_options: Mapping[str, int] = {}

    def __init__(
        self,
        data_dir: Path,
        port: int,
        *,
        start_deadline_s: float,
        stop_deadline_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.data_dir = data_dir.resolve()
        self.port = port
        self._start_deadline_s = start_deadline_s
        self._stop_deadline_s = stop_deadline_s
        self._clock = clock
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The child's process id while it runs."""
        running = self._child is not None and self._child.poll() is None
        return self._child.pid if running and self._child is not None else None

    @property
    def bootstrap(self) -> str:
        return f"{_HOST}:{self.port}"

    @property
    def log_file(self) -> Path:
        return self.data_dir.with_name(self.data_dir.name + ".log")

    def start(self) -> str:
        if self.pid is not None:
            return self.bootstrap
        command = self._command()
        self.data_dir.mkdir(parents=True, exist_ok=True)
        _require_space(self.data_dir)
        _require_port(self.port)
        self._prepare()
        with self.log_file.open("ab") as log:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches us, and we stop it in order
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )
        try:
            self._wait_ready()
        except BaseException:
            self.stop()
            raise
        return self.bootstrap

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill without warning, as a crash would; for tests of durability."""
        self._end(signal.SIGKILL)

    def _command(self) -> Sequence[str]:
        """The command line. Raises BrokerMissing."""
        raise NotImplementedError

    def _prepare(self) -> None:
        """What must be there before the child starts."""

    def _end(self, how: signal.Signals) -> None:
        child, self._child = self._child, None
        if child is None or child.poll() is not None:
            return
        child.send_signal(how)
        try:
            child.wait(self._stop_deadline_s)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()

    def _wait_ready(self) -> None:
        deadline = self._clock() + self._start_deadline_s
        while self._clock() < deadline:
            if self._child is None or self._child.poll() is not None:
                code = self._child.returncode if self._child else None
                raise BrokerFailed(
                    f"{self.name} ended with status {code} while starting.{self._tail()}"
                )
            if _accepts(self.port) and _answers(self.bootstrap):
                return
            time.sleep(0.05)
        raise BrokerFailed(
            f"{self.name} did not answer on {self.bootstrap} within {self._start_deadline_s:g} s; "
            f"its log is {self.log_file}.{self._tail()}"
        )

    def _tail(self, lines: int = 12) -> str:
        try:
            text = self.log_file.read_text(errors="replace").splitlines()[-lines:]
        except OSError:
            return ""
        if any("No space left on device" in line for line in text):
            text.append(f"The disk of {self.data_dir} is full: free space, or choose another one.")
        return "\nThe end of its log:\n" + "\n".join(text) if text else ""


class EmbeddedBroker(_ChildBroker):
    """noida-db's Kafka: one small binary from a wheel, ready in a tenth of a second.

    For demos and quick tests. It never evicts a dead group member by itself, answers empty fetches
    without waiting, and may lose acknowledged records when it is killed.
    """

    name = "noida-db"
    bus_options: Mapping[str, int] = {"poll_pause_max_ms": 20}

    def __init__(
        self,
        data_dir: Path,
        port: int,
        *,
        start_deadline_s: float = 15.0,
        stop_deadline_s: float = 10.0,
    ) -> None:
        super().__init__(
            data_dir, port, start_deadline_s=start_deadline_s, stop_deadline_s=stop_deadline_s
        )

    @staticmethod
    def binary() -> Path | None:
        """Where the wheel put the program, or None."""
        try:
            found = Path(str(files("noida_db") / "noida-db"))
        except ModuleNotFoundError:
            return None
        return found if found.is_file() else None

    def _command(self) -> Sequence[str]:
        binary = self.binary()
        if binary is None:
            raise BrokerMissing("noida-db is not installed: pip install noida-db")
        if not os.access(binary, os.X_OK):
            binary.chmod(0o755)
        port, directory = str(self.port), str(self.data_dir)
        return [
            str(binary),
            "start",
            "--only",
            "kafka",
            "--kafka-port",
            port,
            "--data-dir",
            directory,
        ]


class KafkaBroker(_ChildBroker):
    """Apache Kafka 4.x, one KRaft node, on Java 17 or later. Takes `port` and the port after it."""

    name = "Apache Kafka"

    def __init__(
        self,
        jar_dir: Path,
        data_dir: Path,
        port: int,
        *,
        template: Path = _TEMPLATE,
        heap: str = "512m",
        start_deadline_s: float = 60.0,
        stop_deadline_s: float = 20.0,
    ) -> None:
        super().__init__(
            data_dir, port, start_deadline_s=start_deadline_s, stop_deadline_s=stop_deadline_s
        )
        self._jar_dir = jar_dir.resolve()
        self._template = template
        self._heap = heap

    @staticmethod
    def missing(jar_dir: Path) -> str | None:
        """Why it cannot run here, with what to do about it; None when it can."""
        if shutil.which("java") is None:
            return "java is not installed: apt install openjdk-17-jre-headless, or any newer Java"
        if not list(jar_dir.glob("kafka_2.13-*.jar")):
            return f"no Kafka jars in {jar_dir}: run `make kafka-jars`"
        return None

    @property
    def _properties(self) -> Path:
        return self.data_dir.with_name(self.data_dir.name + ".properties")

    def _java(self, *arguments: str) -> list[str]:
        options = [f"-Xmx{self._heap}", "-XX:+UseSerialGC", "-Dorg.apache.logging.log4j.level=WARN"]
        return ["java", *options, "-cp", str(self._jar_dir / "*"), *arguments]

    def _command(self) -> Sequence[str]:
        reason = self.missing(self._jar_dir)
        if reason is not None:
            raise BrokerMissing(reason)
        return self._java("kafka.Kafka", str(self._properties))

    def _prepare(self) -> None:
        _require_port(self.port + 1)
        text = self._template.read_text()
        for name, value in {
            "@PORT@": self.port,
            "@CONTROLLER_PORT@": self.port + 1,
            "@DATA_DIR@": self.data_dir,
        }.items():
            text = text.replace(name, str(value))
        self._properties.write_text(text)
        if (self.data_dir / "meta.properties").exists():
            return
        cluster = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
        formatting = subprocess.run(
            self._java(
                "kafka.tools.StorageTool", "format", "--standalone",
                "-t", cluster, "-c", str(self._properties),
            ),
            capture_output=True,
            text=True,
            timeout=self._start_deadline_s,
            check=False,
        )  # fmt: skip
        if formatting.returncode != 0:
            raise BrokerFailed(
                f"{self.data_dir} could not be formatted for Kafka: "
                f"{(formatting.stderr or formatting.stdout).strip()[-2000:]}"
            )


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _require_space(directory: Path) -> None:
    free = shutil.disk_usage(directory).free
    if free < _MIN_FREE_BYTES:
        raise BrokerFailed(
            f"the disk of {directory} has {free // 2**20} MiB left, a broker needs "
            f"{_MIN_FREE_BYTES // 2**20}: free space, or choose another directory"
        )


def _require_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError as error:
            raise BrokerFailed(
                f"port {port} is not free ({error.strerror}): "
                "stop what listens there, or choose another"
            ) from None


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((_HOST, port)) == 0


def _answers(bootstrap: str) -> bool:
    try:
        admin = connected(KafkaAdminClient, bootstrap_servers=bootstrap, bootstrap_timeout_ms=2_000)
        try:
            admin.list_topics()
            return True
        finally:
            admin.close()
    except Exception:
        # Whatever goes wrong while it starts only means "not yet"; the deadline is the judge.
        return False
