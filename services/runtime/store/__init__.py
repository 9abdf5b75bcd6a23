"""Where runs, trajectories, scores and verdicts are kept: one interface, two engines."""

from services.runtime.store.interface import (
    MigrationRefused,
    Result,
    Store,
    StoreError,
    StoreRejected,
    StoreUnavailable,
)
from services.runtime.store.opening import open_store
from services.runtime.store.retrying import Retrying

__all__ = [
    "MigrationRefused",
    "Result",
    "Retrying",
    "Store",
    "StoreError",
    "StoreRejected",
    "StoreUnavailable",
    "open_store",
]
