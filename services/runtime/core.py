"""What a stateful service's pure core owes its shell."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from schemas.topics import Topic
from services.runtime.bus.records import Incoming

R = TypeVar("R")
R_contra = TypeVar("R_contra", contravariant=True)
St = TypeVar("St")


@dataclass(frozen=True, slots=True)
class Stream(Generic[R]):
    """The topic a table is built from, and how its records make up the life of a key."""

    topic: Topic
    record: type[R]
    key_of: Callable[[R], str]
    step_of: Callable[[R], str]
    starts: Callable[[R], bool]


class Core(Protocol[R_contra, St]):
    """The pure part of a service. Methods may not block, and depend on their arguments alone."""

    def start(self, record: R_contra) -> St:
        """The state after a key's first record. Raising buries the record."""

    def apply(self, state: St, record: R_contra) -> None:
        """Fold a record into the state. Called once for each step, in log order."""

    def foreign(self, state: St, incoming: Incoming) -> None:
        """Fold a record of a co-partitioned topic into the state of the key it is about."""

    def wants(self, state: St) -> Hashable | None:
        """What is to be done next. The same value means the same deed, done once."""

    def finished(self, state: St) -> bool:
        """Nothing more will be wanted, and nothing that follows matters."""
