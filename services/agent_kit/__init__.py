"""What an agent's author imports, or copies into an upload. Nothing here needs the platform.

`kit` is one file of the standard library; `routes` serves an agent from a Starlette or FastAPI
application; `exporters` writes the tools list of a registration from an SDK's tool objects.
"""

from .kit import (
    Effects,
    Envelope,
    EnvelopeError,
    ProxyError,
    Session,
    actor,
    aproxy_call,
    atrace,
    bound,
    current,
    proxy_call,
    run_async_in_thread,
    set_current,
    trace,
)

__all__ = [
    "Effects",
    "Envelope",
    "EnvelopeError",
    "ProxyError",
    "Session",
    "actor",
    "aproxy_call",
    "atrace",
    "bound",
    "current",
    "proxy_call",
    "run_async_in_thread",
    "set_current",
    "trace",
]
