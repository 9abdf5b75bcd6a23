"""A stack's directory: its lock, its secrets, and where its parts can be reached."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from services.cli.errors import CliError

DEFAULT_DIRECTORY = Path(".windtunnel")
_LOCK, _INFO, _SECRET, _CONTROL = "lock", "stack.json", "token-secret", "control-token"
_TARGETS = "prometheus-targets.json"


@dataclass(frozen=True, slots=True)
class StackInfo:
    """What other commands need to know of a running stack; the content of `stack.json`.

    Attributes:
        environ: Settings under which its broker and store are reached.
        endpoints: Base URLs by process name.
    """

    pid: int
    environ: Mapping[str, str]
    endpoints: Mapping[str, str]


class StackDirectory:
    """One directory, used by one stack at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self._lock: int | None = None

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    def lock(self) -> None:
        """Take the directory for this process; the kernel lets go of it however that ends.

        Raises:
            CliError: another stack has it, or it cannot be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CliError(f"{self.path} cannot be used: {error.strerror}") from None
        while self._lock is None:
            descriptor = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                holder = os.read(descriptor, 20).decode("ascii", "replace").strip()
                os.close(descriptor)
                who = f" (process {holder})" if holder.isdigit() else ""
                raise CliError(
                    f"{self.path} is in use by another stack{who}: stop that one, or choose "
                    f"another --dir"
                ) from None
            if not _is_still(self.path / _LOCK, descriptor):
                os.close(descriptor)  # its last holder removed the file as we waited to open it
                continue
            os.ftruncate(descriptor, 0)
            os.write(descriptor, str(os.getpid()).encode())
            self._lock = descriptor

    def unlock(self) -> None:
        """Give the directory back."""
        if self._lock is not None:
            (self.path / _LOCK).unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None

    def wipe(self) -> None:
        """Remove what earlier stacks left. The directory must be locked."""
        assert self._lock is not None
        for entry in self.path.iterdir():
            if entry.name == _LOCK:
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()

    def token_secret(self) -> str:
        """The secret that dispatcher and tool proxy share; made on first use."""
        return self._secret(_SECRET)

    def control_token(self) -> str:
        """The token that opens the control API; made on first use."""
        return self._secret(_CONTROL)

    def _secret(self, name: str) -> str:
        path = self.path / name
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            text = path.read_text().strip()
            if len(text) < 16:
                raise CliError(f"{path} holds no secret: remove it, a new one is made") from None
            return text
        with os.fdopen(descriptor, "w") as file:
            secret = secrets.token_hex(32)
            file.write(secret + "\n")
        return secret

    def write_info(self, info: StackInfo) -> None:
        """Tell other commands where things are. The store's URL can hold a password: 0600."""
        draft = self.path / (_INFO + ".draft")
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(asdict(info), file, indent=2)
        draft.replace(self.path / _INFO)

    def write_targets(self, endpoints: Mapping[str, str]) -> None:
        """Tell Prometheus what to scrape, in the form of its `file_sd_configs`.

        `endpoints` are base URLs by process name: `SERVICE-REPLICA`, or of what there is one
        of, `SERVICE`.
        """
        targets = []
        for name, endpoint in endpoints.items():
            service, _, replica = name.partition("-")
            labels = {"service": service, "replica": replica or "0"}
            targets.append({"targets": [endpoint.partition("://")[2]], "labels": labels})
        draft = self.path / (_TARGETS + ".draft")
        draft.write_text(json.dumps(targets, indent=2))
        draft.replace(self.path / _TARGETS)

    def remove_info(self) -> None:
        for name in (_INFO, _TARGETS):
            (self.path / name).unlink(missing_ok=True)

    def read_info(self) -> StackInfo | None:
        """Where the running stack is; None if none runs here.

        Raises:
            CliError: the file is there and cannot be read.
        """
        path = self.path / _INFO
        try:
            document = json.loads(path.read_text())
            info = StackInfo(**document)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            raise CliError(f"{path} cannot be read: {error}") from None
        return info if self._is_locked() else None

    def _is_locked(self) -> bool:
        try:
            descriptor = os.open(self.path / _LOCK, os.O_RDONLY)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return False


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    ours = os.fstat(descriptor)
    return (found.st_ino, found.st_dev) == (ours.st_ino, ours.st_dev)
