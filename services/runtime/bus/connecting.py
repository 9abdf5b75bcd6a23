"""kafka-python's clients, connected or gone: a constructor that fails leaves its thread behind."""

from __future__ import annotations

from typing import Any


def connected(kind: Any, **options: Any) -> Any:
    """A `KafkaConsumer` or `KafkaAdminClient`, connected. Blocks.

    kafka-python 3.0 starts a client's thread before it looks for the broker, and when there is
    none it raises and leaves the thread trying for as long as the process lives.

    Raises:
        whatever the constructor does, with nothing left running.
    """
    client = kind.__new__(kind)
    try:
        client.__init__(**options)
    except BaseException:
        loop = getattr(client, "_net", None)
        if loop is not None:
            loop.stop(timeout_ms=1_000)
            client._client.close()
        raise
    return client
