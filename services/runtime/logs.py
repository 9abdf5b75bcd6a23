"""Structured logs: one JSON object a line on standard error, secrets masked."""

from __future__ import annotations

import logging
import re
import sys
from typing import Any

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, WrappedLogger

Log = FilteringBoundLogger

_SECRET_KEY = re.compile(r"token(?!s)|secret|password|authorization|api_key|auth_value", re.I)
_SECRET_TEXT = re.compile(r"(Bearer\s+|gAAAAA)[A-Za-z0-9_\-.=]{8,}|sk-[A-Za-z0-9_-]{8,}")


def mask(_logger: WrappedLogger | None, _method: str, event: EventDict) -> EventDict:
    """Masks values whose key says that they are secret, and what looks like a secret in texts."""
    for key, value in event.items():
        if _SECRET_KEY.search(key):
            event[key] = "***"
        elif isinstance(value, str):
            event[key] = _SECRET_TEXT.sub("***", value)
    return event


def configure(service: str, level: str) -> Log:
    """Set up logging for a process, other libraries' warnings included, and give its logger."""
    threshold = getattr(logging, level.upper())
    shared: list[Any] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        mask,
    ]
    structlog.configure(
        processors=[*shared, structlog.processors.JSONRenderer()],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(threshold, logging.WARNING))
    # It warns of every slow poll of its own loop, which on a busy machine are many.
    logging.getLogger("kafka.net.selector").setLevel(logging.ERROR)
    log: Log = structlog.get_logger().bind(service=service)
    return log
