"""How to reach the broker and how patient to be; resolved once, then frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from services.runtime.bus.errors import BusMisconfigured

_SECURITY_PREFIXES = ("sasl_", "ssl_")
_FALSE = frozenset({"false", "0", "no", "off"})


@dataclass(frozen=True, slots=True)
class BusSettings:
    """Settings shared by every client of one broker.

    The defaults suit a broker that honours long polls (Apache Kafka): records arrive at once and an
    idle consumer costs about 4 % of a core. A broker that answers empty fetches immediately, as
    noida-db does, needs `poll_pause_max_ms` above 0, or every consumer spins; its launcher's
    `bus_options` says so.
    """

    bootstrap: str
    security: Mapping[str, str] = field(default_factory=dict, repr=False)
    """kafka-python's `security_protocol`, `sasl_*` and `ssl_*` options, by their own names."""
    fetch_max_wait_ms: int = 50
    """How long the broker may hold an empty fetch. Also bounds how long a resumed partition
    waits.
    """
    poll_pause_max_ms: int = 0
    """Above 0: poll without waiting and sleep between empty polls, from 1 ms growing up to this."""
    session_timeout_ms: int = 10_000
    heartbeat_interval_ms: int = 500
    """A member learns of a rebalance at its next heartbeat, so this is the length of a
    rebalance.
    """
    rebalance_timeout_ms: int = 20_000
    """How long a rebalance waits for a member that does not come (Kafka's
    `max.poll.interval.ms`).
    """
    request_timeout_ms: int = 10_000
    connect_timeout_ms: int = 10_000
    delivery_timeout_ms: int = 15_000
    """After this the producer itself gives a record up, whether or not anybody still waits for
    it.
    """
    max_record_bytes: int = 1_000_000
    """Of one record with its key and headers. Brokers refuse more than 1 MiB a batch by default."""
    max_in_flight_records: int = 10_000
    """Records handed to the producer and not yet acknowledged; `append` waits for room beyond
    it.
    """
    static_members: bool = True
    """Whether `instance_id` is used for static group membership."""

    def __post_init__(self) -> None:
        for name in self.security:
            if name != "security_protocol" and not name.startswith(_SECURITY_PREFIXES):
                raise BusMisconfigured(
                    f"security option {name!r} is unknown: use security_protocol, sasl_* or ssl_*"
                )
        if not self.bootstrap:
            raise BusMisconfigured("bootstrap is empty: give host:port of a broker")
        if self.heartbeat_interval_ms * 3 > self.session_timeout_ms:
            raise BusMisconfigured(
                f"heartbeat_interval_ms={self.heartbeat_interval_ms} must be at most a third of "
                f"session_timeout_ms={self.session_timeout_ms}"
            )
        if self.fetch_max_wait_ms >= self.request_timeout_ms:
            raise BusMisconfigured("fetch_max_wait_ms must be below request_timeout_ms")
        if self.delivery_timeout_ms < self.request_timeout_ms:
            raise BusMisconfigured("delivery_timeout_ms must not be below request_timeout_ms")

    def client_options(self, client_id: str) -> dict[str, Any]:
        """Options every kafka-python client takes."""
        options: dict[str, Any] = {
            "bootstrap_servers": [part.strip() for part in self.bootstrap.split(",")],
            "client_id": client_id,
            "request_timeout_ms": self.request_timeout_ms,
            "bootstrap_timeout_ms": self.connect_timeout_ms,
            # The library's 30 s would make every client sleep through a broker's restart.
            "reconnect_backoff_max_ms": 500,
        }
        for name, value in self.security.items():
            options[name] = value.lower() not in _FALSE if name == "ssl_check_hostname" else value
        return options

    def reader_options(self, client_id: str) -> dict[str, Any]:
        """Options of every consumer: nothing commits or creates topics behind our back."""
        return self.client_options(client_id) | {
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            # Nothing writes transactions, and read_committed would wait for a stranger's.
            "isolation_level": "read_uncommitted",
            "allow_auto_create_topics": False,
            "fetch_max_wait_ms": self.fetch_max_wait_ms,
            "max_partition_fetch_bytes": max(1 << 20, 2 * self.max_record_bytes),
        }
