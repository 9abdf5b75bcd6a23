"""The one-machine stack: broker, topics, store, services; started in order, kept alive, stopped.

Every service recovers from the log, so a child that dies is simply started again. What dies again
and again is not: the stack then stops, with one message that says which and why.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, TypeVar

from services.cli.errors import CliError
from services.cli.stack.broker import Broker, BrokerError, EmbeddedBroker, KafkaBroker
from services.cli.stack.directory import StackDirectory, StackInfo
from services.cli.stack.ports import Ports
from services.cli.stack.processes import Child, stop_all
from services.cli.stack.readiness import Waiting, ended
from services.cli.stack.restarts import Restarts
from services.cli.stack.services import (
    CONTROL_TOKEN,
    SERVICES,
    STORE,
    STORE_URL,
    TOKEN_SECRET,
    StackOptions,
    base_environ,
    python,
    without_private,
)
from services.cli.topics import create_all
from services.runtime.http import listening
from services.runtime.settings import Settings, load_settings
from services.runtime.store.migrations import migrate
from services.runtime.store.opening import open_store

_WATCH_EVERY_S = 0.2
_STOP_DEADLINE_S = 15.0
_MIGRATION_DEADLINE_S = 10.0
_MIN_FREE_BYTES = 200 * 1024 * 1024

Say = Callable[[str], None]
T = TypeVar("T")


class Stack:
    """A running stack. Everything happens on the event loop's thread, except for the broker, whose
    launcher blocks and has a thread of its own.
    """

    def __init__(self, options: StackOptions, say: Say) -> None:
        """`say` is told what happens, a line at a time."""
        self._options = options
        self._say = say
        self.directory = StackDirectory(options.directory)
        self.environ: dict[str, str] = {}
        self.children: dict[str, Child] = {}
        self.endpoints: dict[str, str] = {}
        self._broker: Broker | None = None
        self._broker_thread = ThreadPoolExecutor(1, thread_name_prefix="broker")
        self._ports = Ports(options.directory, options.port_base)
        self._waiting = Waiting(options.ready_deadline_s)
        self._failed: asyncio.Future[None] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._restarts = Restarts(time.monotonic)
        self._listening: list[socket.socket] = []

    async def __aenter__(self) -> Stack:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start everything; returns when all of it is ready.

        Raises:
            CliError: what could not be started, why, and what to do. Call `stop` then, too.
        """
        self._failed = asyncio.get_running_loop().create_future()
        self.directory.lock()
        if self._options.wipe:
            self.directory.wipe()
        self._require_space()
        self.environ = base_environ(self._options.environ)
        # First, because the store takes longest to start and needs nothing.
        if self._options.store == "embedded":
            self._start_store()
        else:
            self.environ[STORE_URL] = self._options.store
        await self._start_broker()
        settings = load_settings(Settings, self.environ)
        await asyncio.to_thread(create_all, settings.bus(), self._options.partitions)
        self.environ[TOKEN_SECRET] = self.directory.token_secret()
        self.environ[CONTROL_TOKEN] = self.directory.control_token()
        self.environ["WINDTUNNEL_WORLDS"] = ",".join(self._options.worlds)
        self._start_services(with_store=False)
        if STORE in self.children:
            await self._until_ready(STORE)
        await asyncio.to_thread(self._migrate)
        self._start_services(with_store=True)
        await self._until_ready(*self.endpoints)
        self.directory.write_info(
            StackInfo(
                pid=os.getpid(),
                environ={
                    name: self.environ[name]
                    for name in ("WINDTUNNEL_BOOTSTRAP", "WINDTUNNEL_BUS_OPTIONS", STORE_URL)
                    if name in self.environ
                },
                endpoints=self.endpoints,
            )
        )
        self.directory.write_targets(self.endpoints)
        self._watcher = asyncio.create_task(self._watch(), name="stack watcher")
        self._watcher.add_done_callback(self._watched)

    def add(self, name: str, command: Sequence[str], environ: Mapping[str, str]) -> Child:
        """Start one more process, without the services' secrets, and keep it alive like them.

        Raises:
            CliError: it cannot be started.
        """
        log = self.directory.logs / f"{name}.log"
        own = {**without_private(self.environ), **environ}
        self.children[name] = Child(name, command, log, own)
        self.children[name].start()
        return self.children[name]

    def port(self, purpose: str) -> int:
        """A free port for a process to `add`. Raises CliError when there is none."""
        return self._ports.take(purpose)

    async def while_running(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of some work that needs the stack.

        Raises:
            CliError: the stack could not go on, or what the work raises.
        """
        task = asyncio.create_task(work)
        failed = asyncio.create_task(self.failed())
        try:
            await asyncio.wait({task, failed}, return_when=asyncio.FIRST_COMPLETED)
            if failed.done():
                failed.result()
            return await task
        finally:
            task.cancel()
            failed.cancel()
            await asyncio.gather(task, failed, return_exceptions=True)

    @property
    def is_fresh(self) -> bool:
        """Whether nothing that others wrote can be on its broker and in its store."""
        options = self._options
        return options.wipe and options.broker != "external" and options.store == "embedded"

    async def failed(self) -> None:
        """Runs until the stack cannot go on, and raises the CliError that says why."""
        assert self._failed is not None
        await asyncio.shield(self._failed)

    async def stop(self) -> None:
        """Stop everything in reverse order and give the directory back. Safe to call at any time,
        also after a failed start.
        """
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)
        for sock in self._listening:
            sock.close()
        try:
            self.directory.remove_info()
            store = [child for name, child in self.children.items() if name == STORE]
            others = [child for name, child in self.children.items() if name != STORE]
            for late in (
                *await stop_all(others, _STOP_DEADLINE_S),
                *await stop_all(store, _STOP_DEADLINE_S),
            ):
                self._say(f"{late} did not stop within {_STOP_DEADLINE_S:g} s and was killed")
        finally:
            for child in self.children.values():
                child.kill()
            try:
                await self._stop_broker()
            finally:
                self._broker_thread.shutdown(wait=False)
                self.directory.unlock()
                await self._waiting.close()

    async def _stop_broker(self) -> None:
        broker, self._broker = self._broker, None
        if broker is not None:
            # Its thread takes one order at a time: a start under way is finished first.
            await asyncio.get_running_loop().run_in_executor(self._broker_thread, broker.stop)

    async def _start_broker(self) -> None:
        options, data = self._options, self.directory.path / "broker"
        if options.broker == "external":
            self.environ["WINDTUNNEL_BOOTSTRAP"] = options.bootstrap
            return
        if options.broker == "kafka":
            port = self._ports.take("the broker", 2)
            self._broker = KafkaBroker(options.kafka_jars, data, port)
        else:
            self._broker = EmbeddedBroker(data, self._ports.take("the broker"))
        await self._run_broker(self._broker)
        overrides = ",".join(f"{name}={value}" for name, value in self._broker.bus_options.items())
        given = self.environ.get("WINDTUNNEL_BUS_OPTIONS", "")
        self.environ["WINDTUNNEL_BUS_OPTIONS"] = ",".join(filter(None, (overrides, given)))

    async def _run_broker(self, broker: Broker) -> None:
        loop = asyncio.get_running_loop()
        try:
            bootstrap = await loop.run_in_executor(self._broker_thread, broker.start)
        except BrokerError as error:
            raise CliError(str(error)) from None
        self.environ["WINDTUNNEL_BOOTSTRAP"] = bootstrap

    def _start_store(self) -> None:
        port = self._ports.take("the store")
        data = self.directory.path / "store"
        command = python("services.embedded_store", "--data", str(data), "--port", str(port))
        log = self.directory.logs / f"{STORE}.log"
        self.children[STORE] = Child(STORE, command, log, without_private(self.environ))
        self.endpoints[STORE] = f"http://127.0.0.1:{port}"
        self.environ[STORE_URL] = f"embedded+{self.endpoints[STORE]}"
        self.children[STORE].start()

    def _start_services(self, *, with_store: bool) -> None:
        host = load_settings(Settings, self.environ).http_host
        for kind in SERVICES:
            if kind.needs_store != with_store:
                continue
            for replica in range(self._options.replicas.get(kind.name, 1)):
                name = f"{kind.name}-{replica}"
                port = self._ports.take(name)
                # Held here, so that while a service is started again its callers wait instead of
                # being refused: an agent's tool call is not to fail because the proxy did.
                sock = listening(host, port)
                self._listening.append(sock)
                environ = {
                    **without_private(self.environ, kind.private),
                    "WINDTUNNEL_REPLICA": str(replica),
                    "WINDTUNNEL_HTTP_FD": str(sock.fileno()),
                }
                log = self.directory.logs / f"{name}.log"
                self.children[name] = Child(name, python(kind.module), log, environ, sock)
                self.endpoints[name] = f"http://127.0.0.1:{port}"
                self.children[name].start()

    async def _until_ready(self, *names: str) -> None:
        await self._waiting.until_ready(
            {name: self.endpoints[name] for name in names}, self.children
        )

    def _migrate(self) -> None:
        store = open_store(
            self.environ[STORE_URL],
            deadline_s=_MIGRATION_DEADLINE_S,
            create_database=True,
        )
        try:
            migrate(store)
        finally:
            store.close()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_WATCH_EVERY_S)
            for child in list(self.children.values()):
                if child.pid is None:
                    error = ended(child)
                    self._say(f"{str(error).splitlines()[0]} It is started again.")
                    await self._pause(child.name, error)
                    child.start()
            broker = self._broker
            if isinstance(broker, EmbeddedBroker | KafkaBroker) and broker.pid is None:
                error = CliError(f"{broker.name} ended; its log is {broker.log_file}.")
                self._say(f"{error} It is started again.")
                await self._pause(broker.name, error)
                await self._run_broker(broker)

    async def _pause(self, name: str, error: CliError) -> None:
        """Wait before a restart. Raises CliError when it was tried too often."""
        wait_s = self._restarts.next_wait_s(name)
        if wait_s is None:
            raise CliError(
                f"{name} ended {self._restarts.most + 1} times within "
                f"{self._restarts.window_s:g} s, so the stack was stopped. {error}"
            )
        await asyncio.sleep(wait_s)

    def _watched(self, watcher: asyncio.Task[None]) -> None:
        if watcher.cancelled() or self._failed is None or self._failed.done():
            return
        if (error := watcher.exception()) is not None:
            self._failed.set_exception(error)

    def _require_space(self) -> None:
        free = shutil.disk_usage(self.directory.path).free
        if free < _MIN_FREE_BYTES:
            raise CliError(
                f"the disk of {self.directory.path} has {free // 2**20} MiB left and a stack needs "
                f"{_MIN_FREE_BYTES // 2**20}: free space, or choose another --dir"
            )
