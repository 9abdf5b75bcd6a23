"""A group member in a process of its own, to be killed: prints one line a batch, commits nothing
beyond the mark it is given. `python -m tests.contract.bus_member BOOTSTRAP GROUP TOPIC INSTANCE
MARK OPTIONS`
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence

from services.runtime.bus import BusConsumer, BusSettings, Incoming, Partition
from tests.contract.bus_tools import Recorder


class Talker(Recorder):
    mark = 0

    async def batch(self, records: Sequence[Incoming], positions: Mapping[Partition, int]) -> None:
        await super().batch(records, positions)
        print("read", len(self.records), flush=True)

    def low_water_marks(self) -> Mapping[Partition, int]:
        return {partition: self.mark for partition, at in self.positions.items() if at >= self.mark}


async def main(
    bootstrap: str, group: str, topic: str, instance: str, mark: str, options: str
) -> None:
    handler = Talker()
    handler.mark = int(mark)
    settings = BusSettings(bootstrap, **json.loads(options))
    consumer = BusConsumer(
        settings, group, [topic], handler, "victim", instance or None, commit_interval_s=0.1
    )
    await consumer.start()
    await consumer.wait_failed()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
