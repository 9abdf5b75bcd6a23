"""The steps about this machine: what Windtunnel needs to run, and what only some of it needs."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from schemas.topics import ALL
from services.cli.connection import connect, open_the_store
from services.cli.doctor.catalogue import BY_ID
from services.cli.doctor.context import Context
from services.cli.doctor.examination import in_thread
from services.cli.doctor.model import Settled, Step, Tell, failed, ok, skipped, warning
from services.cli.errors import CliError
from services.cli.stack.directory import StackDirectory
from services.cli.stack.services import StackOptions
from services.runtime.agents.exchange import AgentFailed, Exchanger
from services.runtime.bus.admin import end_offsets
from services.runtime.bus.errors import BusError, BusRefused
from services.runtime.bus.settings import BusSettings
from services.runtime.settings import ConfigurationError
from services.runtime.store.interface import StoreError

_MIB = 2**20
_LITTLE_BYTES, _TOO_LITTLE_BYTES = 1024 * _MIB, 200 * _MIB
_PROGRAM_S = 10.0
_CONNECT_MS, _REQUEST_MS = 3_000, 5_000
_JAVA = 17


def environment_steps() -> list[Step[Context]]:
    return [
        Step(("python",), _python),
        Step(("disk",), _disk, timeout_s=10),
        Step(("broker",), _broker, timeout_s=20),
        Step(("topics",), _topics, needs=("broker",), timeout_s=60),
        Step(("store",), _store, timeout_s=20),
        Step(("services",), _services, timeout_s=30),
        Step(("bubblewrap",), _bubblewrap, timeout_s=20),
        Step(("kafka",), _kafka, timeout_s=20),
    ]


async def _python(context: Context, tell: Tell) -> None:
    version = platform.python_version()
    if (3, 11) <= sys.version_info < (3, 14):
        tell(ok("python", version))
    else:
        tell(failed("python", f"this is {version}", BY_ID["python"].mend))


async def _disk(context: Context, tell: Tell) -> None:
    directory = context.request.where.directory.resolve()
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    free = (await in_thread(lambda: shutil.disk_usage(existing))).free
    detail, mend = f"{free // _MIB} MiB are free at {existing}", BY_ID["disk"].mend
    if free < _TOO_LITTLE_BYTES:
        tell(failed("disk", detail, mend))
    elif free < _LITTLE_BYTES:
        tell(warning("disk", detail, mend))
    else:
        tell(ok("disk", detail))


def _bus(context: Context) -> BusSettings:
    """How the broker is reached, with little patience.

    Raises:
        CliError: nothing says where it is.
        ConfigurationError: what says so is wrong.
    """
    return replace(
        connect(context.request.where).settings.bus(),
        connect_timeout_ms=_CONNECT_MS,
        request_timeout_ms=_REQUEST_MS,
    )


async def _broker(context: Context, tell: Tell) -> None:
    mend = BY_ID["broker"].mend
    try:
        bus = _bus(context)
        await in_thread(lambda: end_offsets(bus, ALL[0].full_name))
    except CliError as error:
        tell(skipped("broker", str(error)))
    except ConfigurationError as error:
        tell(failed("broker", str(error), "correct the setting that it names"))
    except BusRefused:
        tell(ok("broker", f"{bus.bootstrap} answers"))  # that there is no such topic
    except BusError as error:
        tell(failed("broker", f"no answer: {error}", mend))
    else:
        tell(ok("broker", f"{bus.bootstrap} answers"))


async def _topics(context: Context, tell: Tell) -> None:
    bus = _bus(context)

    def missing() -> list[str]:
        return [topic.full_name for topic in ALL if not _is_there(bus, topic.full_name)]

    try:
        absent = await in_thread(missing)
    except BusError as error:
        raise Settled(failed("topics", str(error), BY_ID["broker"].mend)) from None
    if absent:
        detail = f"{len(absent)} of {len(ALL)} are missing: {', '.join(absent)}"
        tell(failed("topics", detail, BY_ID["topics"].mend))
    else:
        tell(ok("topics", f"all {len(ALL)} are there"))


def _is_there(bus: BusSettings, topic: str) -> bool:
    try:
        return bool(end_offsets(bus, topic))
    except BusRefused:
        return False


async def _store(context: Context, tell: Tell) -> None:
    def ask() -> None:
        store = open_the_store(context.request.where)
        try:
            store.ping()
        finally:
            store.close()

    try:
        await in_thread(ask)
    except CliError as error:
        tell(skipped("store", str(error)))
    except StoreError as error:
        tell(failed("store", f"no answer: {error}", BY_ID["store"].mend))
    else:
        tell(ok("store", "it answers"))


async def _services(context: Context, tell: Tell) -> None:
    directory = StackDirectory(context.request.where.directory)
    try:
        info = directory.read_info()
    except CliError as error:
        raise Settled(failed("services", str(error), BY_ID["services"].mend)) from None
    if info is None:
        tell(skipped("services", f"no stack runs in {context.request.where.directory}"))
        return
    waiting = []
    exchanger = Exchanger(4)
    try:
        for name, url in sorted(info.endpoints.items()):
            if said := await _unready(exchanger, url, context.request.timeout_s):
                waiting.append(f"{name}: {said}")
    finally:
        await exchanger.close()
    count = len(info.endpoints)
    if waiting:
        detail = f"{len(waiting)} of {count} are not ready"
        mend = f"{BY_ID['services'].mend} ({directory.logs})"
        tell(failed("services", detail, mend, *waiting))
    else:
        tell(ok("services", f"all {count} are ready"))


async def _unready(exchanger: Exchanger, url: str, timeout_s: float) -> str:
    """What a service is waiting for; empty if it is ready."""
    try:
        answer = await exchanger.exchange(
            "GET", f"{url}/readyz", headers={}, timeout_s=min(timeout_s, 3.0)
        )
    except AgentFailed as error:
        return error.detail
    return "" if answer.ok else answer.body[:300].decode(errors="replace").strip()


async def _bubblewrap(context: Context, tell: Tell) -> None:
    program = shutil.which("bwrap")
    if program is None:
        tell(skipped("bubblewrap", "bwrap is not installed; only agents of kind code need it"))
        return
    command = [program, "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "true"]
    code, said = await in_thread(lambda: _run(command))
    if code == 0:
        tell(ok("bubblewrap", f"{program} makes sandboxes"))
    else:
        detail = f"{program} makes no sandbox here: {said}"
        tell(warning("bubblewrap", detail, BY_ID["bubblewrap"].mend))


async def _kafka(context: Context, tell: Tell) -> None:
    java = shutil.which("java")
    if java is None:
        tell(skipped("kafka", "there is no Java; only `up --broker kafka` needs it"))
        return
    code, said = await in_thread(lambda: _run([java, "-version"]))
    version = re.search(r'version "(\d+)', said)
    jars = StackOptions(Path()).kafka_jars
    if code or version is None or int(version[1]) < _JAVA:
        tell(warning("kafka", f"{java} is not Java {_JAVA}: {said}", BY_ID["kafka"].mend))
    elif not any(jars.glob("*.jar")):
        how = "fetch them with `make kafka-jars`"
        how += "" if shutil.which("mvn") else ", for which Maven has to be installed"
        tell(skipped("kafka", f"Java {version[1]} is there, Apache Kafka's jars are not: {how}"))
    else:
        tell(ok("kafka", f"Java {version[1]}, and Apache Kafka in {jars}"))


def _run(command: Sequence[str]) -> tuple[int, str]:
    """Exit code and first line of output of a program that ends soon."""
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=_PROGRAM_S, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        return 1, f"no end within {_PROGRAM_S:g} s"
    except OSError as error:
        return 1, error.strerror or type(error).__name__
    lines = (done.stderr + done.stdout).decode(errors="replace").strip().splitlines()
    return done.returncode, (lines or ["it says nothing"])[0][:300]
