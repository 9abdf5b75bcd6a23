"""What a whole sandbox holds: its processes' memory, and its files, which are memory too.

Limits of the kernel are each process's own; this adds up what all of them take. Seen from outside
through the sandbox's own /proc, which its processes can neither leave nor change.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

from services.dispatcher.code.command import WRITABLE
from services.dispatcher.code.limits import MAX_TMP_FILES, CodeLimits

LOOK_S = 0.1
_PAGE = os.sysconf("SC_PAGE_SIZE")


def memory_held(root_pid: int) -> int:
    """Bytes of anonymous memory of all processes, shared pages counted each time.

    Raises:
        OSError: the sandbox has ended, or cannot be looked into.
    """
    proc = f"/proc/{root_pid}/root/proc"
    total = 0
    for name in os.listdir(proc):
        if name.isdigit():
            with suppress(OSError, ValueError), open(f"{proc}/{name}/statm") as statm:
                words = statm.read().split()
                total += max(0, int(words[1]) - int(words[2])) * _PAGE
    return total


def files_held(root_pid: int) -> tuple[int, int]:
    """Bytes and number of files in the folders that can be written. Raises as `memory_held`."""
    size = number = 0
    for folder in WRITABLE:
        held = os.statvfs(f"/proc/{root_pid}/root{folder}")
        size += (held.f_blocks - held.f_bfree) * held.f_frsize
        number += held.f_files - held.f_ffree
    return size, number


async def exceeded(root_pid: int, limits: CodeLimits) -> str:
    """Returns, with what is wrong, as soon as a sandbox holds more than it may. Never otherwise."""
    bound = limits.memory_mb * 1024 * 1024
    while True:
        await asyncio.sleep(LOOK_S)
        with suppress(OSError):
            size, number = files_held(root_pid)
            if number > MAX_TMP_FILES:
                return f"more than {MAX_TMP_FILES} files in its temporary folders"
            if memory_held(root_pid) + size > bound:
                return f"its processes and files took more than {limits.memory_mb} MiB"
