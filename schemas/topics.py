"""The topic table: every topic's name, record, key, partitions and settings, in one place.

Topics are created from this table and nothing relies on auto-creation. Topics of one
`partition_group` have equal partition counts, so that whoever is assigned partition n of one
is assigned partition n of the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from schemas.gate import BaselineAccepted, GateStatus
from schemas.registry import AgentRegistration, DeadLetter, SourcePart, Suite
from schemas.runs import RunRequest, RunStatus, SessionNotice
from schemas.scores import RunAggregates, SessionScored
from schemas.trajectory import TrajectoryEvent

PREFIX = "windtunnel."
_DAY_MS = 24 * 60 * 60 * 1000
MAX_RECORD_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Topic:
    """One row of the table. `name` is without the deployment's prefix."""

    name: str
    record: type
    key: str
    purpose: str
    written_by: tuple[str, ...]
    read_by: tuple[str, ...]
    compacted: bool = False
    partition_group: str = "single"
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        return PREFIX + self.name

    def config(self) -> dict[str, str]:
        """Broker-side settings with which the topic is created."""
        if self.compacted:
            base = {"cleanup.policy": "compact"}
        else:
            base = {"cleanup.policy": "delete", "retention.ms": str(14 * _DAY_MS)}
        return {**base, "max.message.bytes": str(MAX_RECORD_BYTES), **self.settings}


RUN_REQUESTS = Topic(
    "run-requests", RunRequest, "run id", "Asks for a run.",
    ("anyone",), ("dispatcher",), partition_group="runs",
)  # fmt: skip
RUN_PROGRESS = Topic(
    "run-progress", SessionNotice, "run id", "Tells a run's coordinator about its sessions.",
    ("dispatcher", "judge"), ("dispatcher",), partition_group="runs",
)  # fmt: skip
TRAJECTORIES = Topic(
    "trajectories", TrajectoryEvent, "session id", "Everything that happens in sessions.",
    ("dispatcher", "user_simulator", "tool_proxy"),
    ("dispatcher", "user_simulator", "tool_proxy", "judge", "pipelines", "cli"),
    partition_group="sessions",
)  # fmt: skip
SCORES = Topic(
    "scores", SessionScored, "session id", "Every dimension of a judged session.",
    ("judge",), ("judge", "pipelines", "cli"), partition_group="sessions",
)  # fmt: skip
AGGREGATES = Topic(
    "aggregates", RunAggregates, "run id", "A run's statistics.",
    ("pipelines",), ("gate", "cli"), compacted=True,
)  # fmt: skip
RUN_STATUS = Topic(
    "run-status", RunStatus, "run id", "How far a run is.",
    ("dispatcher", "pipelines"), ("dispatcher", "pipelines", "gate", "cli"), compacted=True,
)  # fmt: skip
GATE_STATUS = Topic(
    "gate-status", GateStatus, "run id", "The verdict that gates the deploy.",
    ("gate",), ("gate", "pipelines", "cli", "deploys"), compacted=True,
)  # fmt: skip
SUITES = Topic(
    "suites", Suite, "suite content hash", "Published suites.",
    ("cli",), ("dispatcher", "judge"), compacted=True,
)  # fmt: skip
AGENTS = Topic(
    "agents", AgentRegistration, "agent id", "Registered agents; secrets by reference.",
    ("cli", "control"), ("dispatcher", "control", "cli"), compacted=True,
)  # fmt: skip
SOURCES = Topic(
    "sources", SourcePart, "source hash / part", "Source of agents that run in a sandbox here.",
    ("cli", "control"), ("dispatcher",), compacted=True,
)  # fmt: skip
BASELINES = Topic(
    "baselines", BaselineAccepted, "suite name / agent name", "Accepted baselines.",
    ("cli",), ("gate", "pipelines", "cli"), compacted=True,
)  # fmt: skip
DEAD_LETTERS = Topic(
    "dead-letters", DeadLetter, "original key", "Records that nobody could read, as they were.",
    ("all services",), ("operators",),
)  # fmt: skip

ALL = (
    RUN_REQUESTS, TRAJECTORIES, SCORES, RUN_PROGRESS, AGGREGATES, RUN_STATUS, GATE_STATUS,
    SUITES, AGENTS, SOURCES, BASELINES, DEAD_LETTERS,
)  # fmt: skip

BY_NAME: Mapping[str, Topic] = {topic.name: topic for topic in ALL}
BY_FULL_NAME: Mapping[str, Topic] = {topic.full_name: topic for topic in ALL}
