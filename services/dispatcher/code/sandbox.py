"""One sandbox: started ahead of its turn, used for that turn, and gone with all that ran in it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from services.dispatcher.code.command import command
from services.dispatcher.code.limits import MAX_OUTPUT_BYTES, MAX_RESULT_BYTES, CodeLimits
from services.dispatcher.code.tools import (
    SandboxUnavailable,
    Tools,
    inherited,
    staging_folder,
)
from services.dispatcher.code.watch import files_held, memory_held

_MAX_REPORT_BYTES = 64 * 1024
_KEPT_OUTPUT = 32 * 1024
_CHUNK = 64 * 1024
_CLOSE_S = 10.0
_TOLD_S = 2.0
_LOOKS = 20


@dataclass(frozen=True, slots=True)
class Report:
    """What the driver says of its turn; `answer` is JSON where there is one."""

    outcome: str
    error: str = ""
    trace: str = ""
    answer: bytes = b""


class Output:
    """The end of what was printed, and whether it was more than is allowed."""

    def __init__(self) -> None:
        self.kept = bytearray()
        self.total = 0
        self.too_much = asyncio.Event()

    async def drain(self, stream: asyncio.StreamReader) -> None:
        """Read until the end, or until it is too much: then whoever prints has to wait."""
        while self.total <= MAX_OUTPUT_BYTES and (chunk := await stream.read(_CHUNK)):
            self.total += len(chunk)
            self.kept += chunk
            del self.kept[:-_KEPT_OUTPUT]
        if self.total > MAX_OUTPUT_BYTES:
            self.too_much.set()


class Sandbox:
    """Made by `start`. Not to be used for a second turn."""

    def __init__(self, process: Process, control: socket.socket, info: int) -> None:
        self._process = process
        self._control = control
        self._info = info
        self._root_fd = -1
        self._closed: asyncio.Task[None] | None = None
        self.root_pid = 0
        """The sandbox's first process, as this side numbers it."""
        self.listener: socket.socket | None = None
        """Listens on loopback inside: what connects there is answered from out here."""
        self.port = 0
        self.output = Output()
        assert process.stdout is not None
        assert process.stderr is not None
        self._streams = process.stdout, process.stderr
        self._drains = [asyncio.create_task(self.output.drain(stream)) for stream in self._streams]

    @classmethod
    async def start(cls, tools: Tools, source: Path, limits: CodeLimits) -> Sandbox:
        """A sandbox with its interpreter up, waiting for its turn; nothing of the source has run.

        Raises:
            SandboxUnavailable: it cannot be set up, or is not ready in time.
        """
        staging = None
        if tools.as_root:
            staging = staging_folder(
                [*tools.interpreter.folders, str(source), str(limits.packages or source)]
            )
        ours, theirs = socket.socketpair()
        info_read, info_write = os.pipe()
        try:
            try:
                with inherited(tools, theirs.fileno(), info_write) as fds:
                    argv = command(
                        bwrap=tools.bwrap, staging=staging, interpreter=tools.interpreter,
                        source=source, limits=limits, fds=fds,
                    )  # fmt: skip
                    process = await asyncio.create_subprocess_exec(
                        *argv, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env={"PATH": os.defpath},
                        cwd="/", start_new_session=True, pass_fds=fds.all(),
                    )  # fmt: skip
            finally:
                theirs.close()
                os.close(info_write)
            ours.setblocking(False)
            os.set_blocking(info_read, False)
            sandbox = cls(process, ours, info_read)
        except BaseException as error:
            ours.close()
            os.close(info_read)
            if isinstance(error, OSError):
                raise SandboxUnavailable(f"no sandbox can be started: {error}") from None
            raise
        try:
            async with asyncio.timeout(limits.start_timeout_s):
                await sandbox._until_ready()
        except BaseException as error:
            await asyncio.shield(sandbox.close())
            if isinstance(error, TimeoutError):
                raise SandboxUnavailable(
                    f"a sandbox was not ready within {limits.start_timeout_s:g} s"
                ) from None
            raise
        return sandbox

    @property
    def is_alive(self) -> bool:
        return self._closed is None and self._process.returncode is None

    async def turn(self, request: Mapping[str, Any]) -> Report | None:
        """Hand over the turn, and return what the driver reports; None where it died first."""
        body = orjson.dumps(request)
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_sendall(self._control, len(body).to_bytes(4, "big") + body)
            header = await self._receive(4)
            size = int.from_bytes(header, "big")
            if size > _MAX_REPORT_BYTES:
                return None
            report = orjson.loads(await self._receive(size))
            outcome = str(report["outcome"])
            length = int(report.get("size", 0)) if outcome == "answered" else 0
            if not 0 <= length <= MAX_RESULT_BYTES:
                return None
            answer = await self._receive(length)
        # What comes over this line can be anything: the agent's code can write to it.
        except (EOFError, OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return Report(outcome, str(report.get("error", "")), str(report.get("trace", "")), answer)

    async def ended(self) -> int:
        """Returns the exit status when the driver has ended by itself: 128 and up for signals."""
        return await self._process.wait()

    async def output_read(self) -> None:
        """Returns when what was printed before the report has been read: it is in the pipes."""
        for _ in range(_LOOKS):
            await asyncio.sleep(0)

    async def close(self) -> None:
        """Kill everything in it; returns when nothing of it is left.

        Raises:
            SandboxUnavailable: the kernel has not ended it in time.
        """
        if self._closed is None:
            self._closed = asyncio.create_task(self._close())
        await asyncio.shield(self._closed)

    async def _close(self) -> None:
        for drain in self._drains:
            drain.cancel()
        await asyncio.gather(*self._drains, return_exceptions=True)
        # asyncio has a process end with its pipes, so what is still in them has to be read.
        ending = asyncio.gather(self._process.wait(), *map(_discard, self._streams))
        if self._root_fd < 0:
            # Stopped while it was starting: what there is to end is about to be told.
            with contextlib.suppress(OSError, ValueError):
                async with asyncio.timeout(_TOLD_S):
                    await _readable(self._info)
                self._find_root()
        if self._root_fd >= 0:
            # The kernel ends a namespace with its first process, and that one last of all. Its
            # parent stays for it: killed as well, it would leave a zombie to whoever is init.
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._root_fd, signal.SIGKILL)
            await asyncio.wait({ending}, timeout=_CLOSE_S)
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        try:
            async with asyncio.timeout(_CLOSE_S):
                await ending
                if self._root_fd >= 0:
                    await _readable(self._root_fd)
        except TimeoutError:
            raise SandboxUnavailable(
                f"a sandbox was killed and has not ended within {_CLOSE_S:g} s"
            ) from None
        if self._root_fd >= 0:
            # Where it ended by itself its parent may have left first, and it is init's to reap;
            # in a container that can be this process.
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PIDFD, self._root_fd, os.WEXITED | os.WNOHANG)  # noqa: ASYNC222
            os.close(self._root_fd)
            self._root_fd = -1
        if self.listener is not None:
            self.listener.close()
        self._control.close()
        os.close(self._info)

    async def _until_ready(self) -> None:
        ready = asyncio.create_task(_readable(self._control.fileno()))
        ended = asyncio.create_task(self._process.wait())
        try:
            await asyncio.wait({ready, ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
            ended.cancel()
            await asyncio.gather(ready, ended, return_exceptions=True)
        try:
            data, fds, _, _ = socket.recv_fds(self._control, 4096, 1)
        except OSError:
            data, fds = b"", []
        if len(data) < 4 or len(fds) != 1:
            raise SandboxUnavailable(await self._why())
        self.listener = socket.socket(fileno=fds[0])
        self.listener.setblocking(False)
        self.port = int(orjson.loads(data[4:])["port"])
        # bubblewrap wrote this before it started the driver, from which we have just heard.
        self._find_root()
        try:
            files_held(self.root_pid)
            memory_held(self.root_pid)
        except OSError as error:
            raise SandboxUnavailable(
                f"what a sandbox takes cannot be seen from outside: {error}"
            ) from None

    def _find_root(self) -> None:
        self.root_pid = int(orjson.loads(os.read(self._info, 4096))["child-pid"])
        self._root_fd = os.pidfd_open(self.root_pid)

    async def _why(self) -> str:
        await self._process.wait()
        await asyncio.gather(*self._drains)
        said = self.output.kept.decode(errors="replace").strip().splitlines()
        return (
            f"a sandbox cannot be set up here: {said[-1][:300] if said else 'no reason given'}; it "
            f"takes bubblewrap 0.8 or later and user namespaces for unprivileged users"
        )

    async def _receive(self, size: int) -> bytes:
        loop = asyncio.get_running_loop()
        received = bytearray()
        while len(received) < size:
            chunk = await loop.sock_recv(self._control, min(_CHUNK, size - len(received)))
            if not chunk:
                raise EOFError
            received += chunk
        return bytes(received)


async def _discard(stream: asyncio.StreamReader) -> None:
    while await stream.read(_CHUNK):
        pass


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    waiting: asyncio.Future[None] = loop.create_future()

    def notice() -> None:
        if not waiting.done():
            waiting.set_result(None)

    loop.add_reader(fd, notice)
    try:
        await waiting
    finally:
        loop.remove_reader(fd)
