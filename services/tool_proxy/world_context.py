"""What a tool of a world may use while it answers one call."""

from __future__ import annotations

import random
import sqlite3
from dataclasses import dataclass, field
from datetime import datetime

from services.tool_proxy.jsons import JsonObject, canonical
from services.tool_proxy.world_errors import WorldError
from services.tool_proxy.world_state_database import Database
from services.tool_proxy.world_state_files import Files


@dataclass(frozen=True, slots=True)
class StateKinds:
    """What a world's state is besides plain JSON."""

    database: Database | None = None
    files: bool = False


@dataclass(slots=True)
class Context:
    """What a tool may use while it answers one call."""

    state: JsonObject
    """The world's state, a private copy. Changes are kept only if the function returns."""
    now: datetime
    """The world's time, UTC: its start plus what has passed by this call."""
    random: random.Random
    """Seeded from the session's seed and this call's ordinal."""
    call: int
    """The call's ordinal in its session, from 1."""
    _kinds: StateKinds = field(default_factory=StateKinds, repr=False)
    _connection: sqlite3.Connection | None = field(default=None, repr=False)

    @property
    def db(self) -> sqlite3.Connection:
        """The world's tables. Rows are mappings; what is not rolled back is kept with the state.

        Raises:
            WorldError: the world has no database.
        """
        if self._connection is None:
            if self._kinds.database is None:
                raise WorldError("this world has no database: give it one, World(..., database=)")
            opened = self._kinds.database.opened(self.state, self.now, self.random)
            self._connection = opened
        return self._connection

    @property
    def files(self) -> Files:
        """The world's files. Raises WorldError: it has none."""
        if not self._kinds.files:
            raise WorldError("this world has no files: give it some, World(..., files=)")
        return Files(self.state["files"], self.now)

    def begin(self, kinds: StateKinds) -> None:
        """Before the tool: what `db` and `files` are of."""
        self._kinds = kinds

    def fingerprint(self) -> bytes:
        """Equal while nothing of the state has changed."""
        changes = 0 if self._connection is None else self._connection.total_changes
        return canonical([self.state, changes])

    def settle(self) -> None:
        """After the tool: the state says what the database has become.

        Raises:
            ToolError: what it has become cannot be kept.
        """
        if self._connection is not None and self._kinds.database is not None:
            self.state.update(self._kinds.database.kept(self._connection))

    def close(self) -> None:
        """Let go of the database."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
