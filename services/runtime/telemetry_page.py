"""`python -m services.runtime.telemetry_page`: docs/telemetry.md, from the names."""

from __future__ import annotations

from services.runtime import telemetry_names as n
from services.runtime.metrics import SPANS, TRACEPARENTS
from services.runtime.telemetry import STOP_S
from services.runtime.telemetry_span import MAX_CONTENT, MAX_TEXT

_HEAD = f"""# Traces

Each session can be exported as one OpenTelemetry trace, and an agent that is traced itself can hang
its own spans into it. By default nothing is exported, nothing of OpenTelemetry's is loaded, and
agents are sent no header about it. To switch it on, start the services (or `windtunnel up`, or
`windtunnel demo`) with

    WINDTUNNEL_OTLP_ENDPOINT=http://127.0.0.1:4318

- `WINDTUNNEL_OTLP_ENDPOINT`: base URL of a collector that takes OTLP over HTTP (protobuf);
  `/v1/traces` is appended. Empty: no traces.
- `WINDTUNNEL_OTLP_HEADERS`: `name=value,name=value` to send along, values percent-encoded where
  they hold a comma. It is a secret, and kept as one.
- `WINDTUNNEL_OTLP_CONTENTS`: `true` lets spans quote messages, tool arguments, results and the
  judge's reasons. Off unless set, since they can hold what must not go to a collector.

Of the exporter's own environment variables those for TLS, compression and headers
(`OTEL_EXPORTER_OTLP_CERTIFICATE`, ...) and `OTEL_RESOURCE_ATTRIBUTES` are heeded; none of them
switches anything on.

## Spans

    invoke_workflow SCENARIO                 the session
    ├── invoke_agent user_simulator          the user simulator makes up a turn
    ├── invoke_agent AGENT                   a turn at the agent, from posting to answer
    │   └── ...                              the agent's own spans, if it goes on with the trace
    │       ├── execute_tool TOOL            a tool call through the proxy
    │       └── report TYPE                  a trace event that it posted
    └── evaluate SCENARIO                    the judge, after the session; an event per dimension
        └── chat MODEL                       a call of the judge's model, a repeated one too

A tool of the user's own hangs under the user simulator's span. Trace and span ids are hashes of the
session's id and of the id of the event that the span belongs to (for a call of the judge's model,
also of what was asked): whatever is replayed after a restart is exported again under the same ids,
and which replica does it makes no difference. Times are those of the trajectory and of the judging,
in milliseconds. The resource says who exports: `service.name` (`windtunnel-dispatcher`,
`-tool-proxy`, `-user-simulator`, `-judge`), `service.version` and `service.instance.id`.

## The agent's side

With a collector configured, every turn carries a W3C
[`traceparent`](https://www.w3.org/TR/trace-context/), sampled, that names the turn's span:

- `http`: in the request's `traceparent` header.
- `openai`: likewise, in each request to the model.
- `rasa`: likewise, in each request of the turn; and as `traceparent` in the message's metadata, for
  custom actions.
- `code`: in the environment variable `TRACEPARENT`.

An agent that sends a `traceparent` with its tool calls and trace events, as OpenTelemetry's
instrumentation of HTTP clients does, has them hung under the span it names. Without one, or with
one that is malformed, unsampled or of another trace, they hang under the turn; the agent is
answered the same in any case, and `{TRACEPARENTS.name}` counts which it was.

## When the collector is down

Spans wait in a bounded queue and are sent from a thread of their own, in batches, each tried for
seconds at most. What the collector does not take is dropped. The first failure is logged, all are
counted in `{SPANS.name}`, and no session waits for it or fails because of it. Stopping a
service waits {STOP_S:g} s at most for what is left. After a `kill -9` some spans can be missing.

## Attributes

`gen_ai.*` and `error.type` are those of the
[semantic conventions {n.SEMCONV_VERSION}](https://github.com/open-telemetry/semantic-conventions/tree/v{n.SEMCONV_VERSION}/docs/gen-ai),
where they have the status Development; all names are pinned in
`services/runtime/telemetry_names.py`, from which this page is made by `make schemas`. Texts are cut
to {MAX_TEXT} characters, contents to {MAX_CONTENT}. None of them holds a secret or a run token.

| attribute | spans | meaning |
|---|---|---|
"""


def page() -> str:
    """The page's text."""
    plain = [one for one in n.CATALOGUE if not one.content]
    contents = [one for one in n.CATALOGUE if one.content]
    return (
        _HEAD
        + "".join(map(_row, plain))
        + "\nOnly with `WINDTUNNEL_OTLP_CONTENTS=true`:\n\n"
        + "| attribute | spans | meaning |\n|---|---|---|\n"
        + "".join(map(_row, contents))
    )


def _row(attribute: n.Attribute) -> str:
    spans = "all" if attribute.spans == n.ROLES else ", ".join(attribute.spans)
    return f"| `{attribute.name}` | {spans} | {attribute.meaning} |\n"


if __name__ == "__main__":
    print(page(), end="")
