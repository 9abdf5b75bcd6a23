"""What of this machine a Python needs to run elsewhere: its executable and where its library is."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_FILES = ("/etc/ld.so.cache", "/etc/alternatives")


@dataclass(frozen=True, slots=True)
class Interpreter:
    """An executable, the folders it needs at their own paths, and the links beside /usr."""

    executable: str
    folders: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    optional: tuple[str, ...] = _FILES


def this_interpreter() -> Interpreter:
    """The Python that runs this, without its virtual environment."""
    executable = os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)
    folders, links = ["/usr"], []
    for name in _SYSTEM:
        path = f"/{name}"
        if os.path.islink(path):
            links.append((os.readlink(path), path))
        elif os.path.isdir(path):
            folders.append(path)
    for prefix in (os.path.realpath(sys.base_prefix), os.path.realpath(sys.base_exec_prefix)):
        if not any(prefix == folder or prefix.startswith(f"{folder}/") for folder in folders):
            folders.append(prefix)
    return Interpreter(executable, tuple(folders), tuple(links))
