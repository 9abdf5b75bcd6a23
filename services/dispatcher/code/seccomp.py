"""A filter of system calls that no agent needs, as the program the kernel takes.

A list of what is refused, as flatpak and container runtimes have it: it narrows what a flaw in the
kernel could be reached with. Namespaces, user and capabilities do the rest.
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Sequence

_EPERM, _ENOSYS = 1, 38
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_LOAD, _JEQ, _JGE, _JSET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_X32 = 0x40000000
_NEW_NAMESPACES = 0x7E020080
"""CLONE_NEWTIME, -NS, -CGROUP, -UTS, -IPC, -USER, -PID and -NET."""

# Names with their numbers on x86-64 and on the architectures of the generic table (arm64).
_REFUSED: dict[str, tuple[int, int]] = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "kcmp": (312, 272), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "chroot": (161, 51), "move_mount": (429, 429), "open_tree": (428, 428), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "unshare": (272, 97), "setns": (308, 268),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "reboot": (169, 142), "swapon": (167, 224),
    "swapoff": (168, 225), "acct": (163, 89), "quotactl": (179, 60), "syslog": (103, 116),
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264), "fanotify_init": (300, 262),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266),
    "adjtimex": (159, 171), "mbind": (237, 235), "set_mempolicy": (238, 237),
    "migrate_pages": (256, 238), "move_pages": (279, 239), "vmsplice": (278, 75),
    # Memory that no limit of ours would see: it belongs to no process and to no folder.
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194),
    "msgget": (68, 186), "semget": (64, 190),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    # Its flags lie in memory, where no filter sees them; libc falls back to clone.
    "clone3": (435, 435),
}  # fmt: skip
_MISSING = frozenset({"clone3", "io_uring_setup", "memfd_create", "memfd_secret"})
_CLONE = (56, 220)
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


def filter_program(machine: str | None = None) -> bytes | None:
    """The program for this machine; None for one whose system calls are not listed here."""
    known = _MACHINES.get(machine or platform.machine())
    if known is None:
        return None
    column, architecture = known
    program = [
        _step(_LOAD, _ARCHITECTURE),
        _step(_JEQ, architecture, 1, 0),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NUMBER),
    ]
    if column == 0:
        program += [_step(_JGE, _X32, 0, 1), _step(_RETURN, _ERRNO | _ENOSYS)]
    for name, numbers in _REFUSED.items():
        answer = _ENOSYS if name in _MISSING else _EPERM
        program += [_step(_JEQ, numbers[column], 0, 1), _step(_RETURN, _ERRNO | answer)]
    program += [
        _step(_JEQ, _CLONE[column], 0, 3),
        _step(_LOAD, _FIRST_ARGUMENT),
        _step(_JSET, _NEW_NAMESPACES, 0, 1),
        _step(_RETURN, _ERRNO | _EPERM),
        _step(_RETURN, _ALLOW),
    ]
    return _joined(program)


def _step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("<HBBI", code, yes, no, value)


def _joined(program: Sequence[bytes]) -> bytes:
    return b"".join(program)
