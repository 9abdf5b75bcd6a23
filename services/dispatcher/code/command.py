"""The command line of a sandbox. Pure: nothing here looks at the machine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from services.dispatcher.code.interpreter import Interpreter
from services.dispatcher.code.limits import MAX_RESULT_BYTES, CodeLimits

ROOT = "/app"
PACKAGES = "/opt/packages"
HOME = "/home/agent"
WRITABLE = ("/tmp", HOME, "/dev/shm")
DRIVER = "/opt/driver.py"
_NOBODY = "65534"
_MIB = 1024 * 1024
_STAGE = """
place=$1; shift
mount -t tmpfs -o size=64k,mode=755 none "$place"
while [ "$1" != -- ]; do mkdir "$place/$1"; mount --bind "$2" "$place/$1"; shift 2; done
shift
exec "$@"
"""


@dataclass(frozen=True, slots=True)
class Descriptors:
    """File descriptors that the sandbox's command inherits."""

    control: int
    info: int
    seccomp: int | None
    files: Mapping[str, int]
    """By the path at which each is to be read."""

    def all(self) -> tuple[int, ...]:
        seccomp = () if self.seccomp is None else (self.seccomp,)
        return (self.control, self.info, *seccomp, *self.files.values())


def command(
    *,
    bwrap: str,
    staging: str | None,
    interpreter: Interpreter,
    source: Path,
    limits: CodeLimits,
    fds: Descriptors,
) -> list[str]:
    """What to execute.

    `staging` is given where this process is root: no limit on processes counts for root, even for
    one that a user namespace calls somebody else. The sandbox is then built by an unprivileged
    user, for whom what only root can reach is first mounted below that folder, in a mount
    namespace of its own. All this replaces itself step by step, so that bubblewrap is this
    process's own child, and the kernel ends it when this process dies.
    """
    folders = {folder: folder for folder in interpreter.folders}
    places = {ROOT: str(source)}
    if limits.packages is not None:
        places[PACKAGES] = str(limits.packages)
    before: list[str] = []
    if staging is not None:
        before = ["unshare", "--mount", "--propagation=private", "--", "sh", "-ec", _STAGE, "sh"]
        before += [staging]
        for number, (table, place) in enumerate(
            [(folders, place) for place in folders if place != "/usr"]
            + [(places, place) for place in places]
        ):
            before += [str(number), table[place]]
            table[place] = f"{staging}/{number}"
        before += ["--", "setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups"]
        before += ["--inh-caps=-all", "--bounding-set=-all", "--no-new-privs", "--"]
    return [
        *before,
        bwrap, "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent",
        "--new-session", "--uid", _NOBODY, "--gid", _NOBODY, "--hostname", "localhost",
        "--cap-drop", "ALL", "--clearenv",
        *_mounts(interpreter, folders, places, limits, fds),
        *_environment(), "--chdir", ROOT, "--info-fd", str(fds.info),
        *(() if fds.seccomp is None else ("--seccomp", str(fds.seccomp))),
        "--", interpreter.executable, "-I", "-S", "-B", "-u", DRIVER, str(fds.control),
        _options(limits),
    ]  # fmt: skip


def _mounts(
    interpreter: Interpreter,
    folders: dict[str, str],
    places: dict[str, str],
    limits: CodeLimits,
    fds: Descriptors,
) -> Sequence[str]:
    size = str(limits.disk_mb * _MIB)
    words: list[str] = []
    for place, found in folders.items():
        words += ["--ro-bind", found, place]
    for target, link in interpreter.links:
        words += ["--symlink", target, link]
    for path in interpreter.optional:
        words += ["--ro-bind-try", path, path]
    words += ["--proc", "/proc", "--dev", "/dev"]
    for path in WRITABLE:
        words += ["--perms", "0700", "--size", size, "--tmpfs", path]
    for path, fd in fds.files.items():
        words += ["--perms", "0444", "--ro-bind-data", str(fd), path]
    for place, found in places.items():
        words += ["--ro-bind", found, place]
    # Last: until here mount points are made in them. Left writable, they would have no bound.
    return [*words, "--remount-ro", "/dev", "--remount-ro", "/"]


def _environment() -> Sequence[str]:
    variables = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": HOME,
        "USER": "agent",
        "LOGNAME": "agent",
        "TMPDIR": "/tmp",
        "LANG": "C.UTF-8",
        # Each thread's arena takes 64 MiB of address space, which is what is limited.
        "MALLOC_ARENA_MAX": "2",
    }
    return [word for item in variables.items() for word in ("--setenv", *item)]


def _options(limits: CodeLimits) -> str:
    return json.dumps(
        {
            "root": ROOT,
            "packages": PACKAGES if limits.packages is not None else "",
            "max_result": MAX_RESULT_BYTES,
            "limits": {
                "RLIMIT_AS": [limits.memory_mb * _MIB] * 2,
                "RLIMIT_NPROC": [limits.processes] * 2,
                "RLIMIT_NOFILE": [limits.open_files] * 2,
                "RLIMIT_FSIZE": [limits.disk_mb * _MIB] * 2,
                # The first limit has a signal of its own, so that it can be told from others.
                "RLIMIT_CPU": [limits.cpu_s, limits.cpu_s + 1],
                "RLIMIT_CORE": [0, 0],
            },
        }
    )
