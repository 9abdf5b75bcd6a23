"""The programs that build a sandbox, and the few files that lie in each."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.resources import files

from services.dispatcher.code.command import DRIVER, Descriptors
from services.dispatcher.code.interpreter import Interpreter
from services.dispatcher.code.seccomp import filter_program

_AS_ROOT = ("unshare", "setpriv", "mount", "sh")
_FILES = {
    "/etc/passwd": b"root:x:0:0::/:/bin/false\nagent:x:65534:65534::/home/agent:/bin/sh\n",
    "/etc/group": b"root:x:0:\nagent:x:65534:\n",
    "/etc/hosts": b"127.0.0.1 localhost\n::1 localhost\n",
    # Names are looked up in that file alone: there is no network to ask.
    "/etc/nsswitch.conf": b"passwd: files\ngroup: files\nhosts: files\n",
}


class SandboxUnavailable(LookupError):
    """A sandbox cannot be set up on this machine; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Tools:
    """The programs that build a sandbox, and what goes into it."""

    bwrap: str
    as_root: bool
    interpreter: Interpreter
    driver: bytes
    seccomp: bytes | None


def find_tools(interpreter: Interpreter) -> Tools:
    """The programs of this machine.

    Raises:
        SandboxUnavailable: one of them is not installed.
    """
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise SandboxUnavailable(
            "agents of kind code run in a sandbox, which needs bubblewrap: install the package "
            "bubblewrap where the dispatcher runs"
        )
    as_root = os.geteuid() == 0
    missing = [name for name in _AS_ROOT if as_root and shutil.which(name) is None]
    if missing:
        raise SandboxUnavailable(
            f"agents of kind code need {', '.join(missing)} where the dispatcher runs as root: "
            f"install the packages util-linux and mount, or run it as another user"
        )
    driver = files(__package__).joinpath("driver.py").read_bytes()
    return Tools(bwrap, as_root, interpreter, driver, filter_program())


def staging_folder(sources: Iterable[str]) -> str:
    """A folder that can be mounted over without hiding any of these.

    Raises:
        SandboxUnavailable: this machine has none.
    """
    needed = [os.path.realpath(source) + "/" for source in sources]
    for folder in ("/mnt", "/media", "/srv", "/opt", "/tmp", "/var/tmp"):
        if os.path.isdir(folder) and not any(path.startswith(f"{folder}/") for path in needed):
            return folder
    raise SandboxUnavailable("none of /mnt, /media, /srv, /opt and /tmp can be mounted over")


@contextlib.contextmanager
def inherited(tools: Tools, control: int, info: int) -> Iterator[Descriptors]:
    """The descriptors that a sandbox's command is started with, for as long as that takes."""
    with contextlib.ExitStack() as stack:

        def holding(content: bytes) -> int:
            fd = os.memfd_create("data", os.MFD_CLOEXEC)
            stack.callback(os.close, fd)
            os.write(fd, content)
            os.lseek(fd, 0, os.SEEK_SET)
            return fd

        contents = {**_FILES, DRIVER: tools.driver}
        yield Descriptors(
            control=control,
            info=info,
            seccomp=None if tools.seccomp is None else holding(tools.seccomp),
            files={path: holding(content) for path, content in contents.items()},
        )
