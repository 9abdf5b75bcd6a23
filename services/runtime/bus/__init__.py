"""The bus: appending to, and reading from, Kafka. Knows nothing of what the records mean."""

from services.runtime.bus.admin import (
    TopicsCreated,
    TopicSpec,
    beginning_offsets,
    create_topics,
    end_offsets,
    group_owners,
    partition_for,
    read_range,
)
from services.runtime.bus.consumer import BusConsumer
from services.runtime.bus.errors import (
    BusClosed,
    BusError,
    BusMisconfigured,
    BusRefused,
    BusUnavailable,
    RecordTooLarge,
)
from services.runtime.bus.handler import PartitionHandler, PartitionSpan
from services.runtime.bus.producer import BusProducer
from services.runtime.bus.records import Incoming, Outgoing, Partition
from services.runtime.bus.settings import BusSettings
from services.runtime.bus.table import BusTable

__all__ = [
    "BusClosed",
    "BusConsumer",
    "BusError",
    "BusMisconfigured",
    "BusProducer",
    "BusRefused",
    "BusSettings",
    "BusTable",
    "BusUnavailable",
    "Incoming",
    "Outgoing",
    "Partition",
    "PartitionHandler",
    "PartitionSpan",
    "RecordTooLarge",
    "TopicSpec",
    "TopicsCreated",
    "beginning_offsets",
    "create_topics",
    "end_offsets",
    "group_owners",
    "partition_for",
    "read_range",
]
