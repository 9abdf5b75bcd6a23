"""Creating the topics of `schemas.topics`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from schemas.topics import ALL, Topic
from services.cli.errors import CliError
from services.runtime.bus.admin import TopicsCreated, TopicSpec, create_topics, end_offsets
from services.runtime.bus.settings import BusSettings

_UNSHARED = "single"


def partitions_of(topic: Topic, partitions: int) -> int:
    """Topics that every reader reads whole have one partition, so that their order is total."""
    return 1 if topic.partition_group == _UNSHARED else partitions


def create_all(settings: BusSettings, partitions: int, replication: int = -1) -> TopicsCreated:
    """Create the topics that are missing; blocks.

    Raises:
        CliError: topics that must have equally many partitions have not.
        BusError: see `create_topics`.
    """
    specs = [
        TopicSpec(topic.full_name, partitions_of(topic, partitions), topic.config(), replication)
        for topic in ALL
    ]
    done = create_topics(settings, specs)
    if done.existed:
        _check_partitions(settings, ALL)
    return done


def _check_partitions(settings: BusSettings, topics: Sequence[Topic]) -> None:
    groups: dict[str, dict[str, int]] = defaultdict(dict)
    for topic in topics:
        if topic.partition_group != _UNSHARED:
            count = len(end_offsets(settings, topic.full_name))
            groups[topic.partition_group][topic.full_name] = count
    for counts in groups.values():
        if len(set(counts.values())) > 1:
            found = ", ".join(f"{name} has {count}" for name, count in counts.items())
            raise CliError(
                f"these topics must have equally many partitions: {found}. Create the ones with "
                f"fewer anew, or add partitions before anything is written"
            )
