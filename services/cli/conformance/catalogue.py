"""Every check: the requirement it decides, what is expected, and how to mend what it finds.

A *must* is what the contract demands; an agent that fails one does not work here, or works by luck.
A *should* is what it advises, or what a conforming agent can do without until conditions are bad.
"""

from __future__ import annotations

from services.cli.conformance.model import CheckSpec

CATALOGUE: tuple[CheckSpec, ...] = (
    # Ping and auth.
    CheckSpec(
        "ping_answered", "R17", "must",
        'the body {"ping": true}, with the right auth, is answered 2xx',
        "After checking auth and before reading anything else of the body, answer 200 to the body "
        '{"ping": true}.',
    ),
    CheckSpec(
        "ping_needs_auth", "R17", "must",
        "a ping without the auth header is refused with 401",
        "Check auth before looking for the ping: a ping that passes without auth hides a wrong "
        "secret until the first turn.",
    ),
    CheckSpec(
        "ping_checks_auth", "R17", "must",
        "a ping with a wrong auth value is refused with 401",
        "Compare the whole header value with the expected one, in constant time.",
    ),
    CheckSpec(
        "turn_needs_auth", "R11", "must",
        "a turn without auth, or with a wrong value, is refused and calls no tool",
        "Check auth first on every request, not only on pings.",
    ),
    CheckSpec(
        "ping_exact", "R17", "should",
        "only the body that is exactly the ping is a ping; a turn with a field of that name is not",
        'Compare the whole body with {"ping": true} instead of looking for the key.',
    ),
    # Turns.
    CheckSpec(
        "turn_answered", "R11", "must",
        "a turn is answered 2xx",
        "Look into the agent's own log. If the tool's answer was not what its tool answers, give "
        "the kit one (responses) or register output schemas.",
    ),
    CheckSpec(
        "in_time", "R16", "must",
        "the whole answer arrives within the agent's timeout",
        "Bound the agent's own loop, or register a longer run_timeout_s (at most 1800).",
    ),
    CheckSpec(
        "final_response", "R13", "must",
        "the answer is a JSON object whose final_response is a non-empty string",
        'Answer {"final_response": "..."}; put a text even where the agent has nothing to say.',
    ),
    CheckSpec(
        "rich_answer", "R14", "should",
        "messages and metadata, where given, are well-formed and kept",
        "Mend what the warning names: roles, tool_call_id of an earlier call, integer token "
        "counts. Malformed parts are dropped.",
    ),
    CheckSpec(
        "body_is_enough", "R12", "must",
        "a turn works when of the X-Pipelines headers only the run token arrives",
        "Read odyssey_proxy_url and the ids from the body first, and from headers only where the "
        "body lacks them.",
    ),
    CheckSpec(
        "header_fallback", "R11", "should",
        "a turn works when proxy URL and ids arrive in the headers only",
        "Where the body lacks odyssey_proxy_url, take X-Pipelines-Odyssey-Proxy-Url.",
    ),
    CheckSpec(
        "additive_fields", "R12", "must",
        "unknown fields and headers, such as those of later turns, change nothing",
        "Ignore what you do not know in the body instead of refusing it.",
    ),
    CheckSpec(
        "empty_state", "R12", "must",
        "a turn whose inner input is {} is answered",
        "Treat every field of input.input as optional; a task need not have a state.",
    ),
    # Tool calls.
    CheckSpec(
        "call_path", "R02", "must",
        "tools are called by POST {odyssey_proxy_url}/tools/{name} and traces sent to /trace",
        "Append /tools/ and the tool's name to the odyssey_proxy_url of this very turn.",
    ),
    CheckSpec(
        "call_auth", "R02", "must",
        "every call carries the turn's run token, as a bearer or in X-Pipelines-Run-Token",
        "Send Authorization: Bearer with the value of the turn's X-Pipelines-Run-Token header.",
    ),
    CheckSpec(
        "call_body", "R02", "must",
        "the body of a call is the bare arguments object, in JSON",
        "Send the arguments object itself, not wrapped in another one, and {} for no arguments.",
    ),
    CheckSpec(
        "tool_known", "R01", "must",
        "tools are called by their registered names",
        "Register the tool, or call it by the name it is registered under.",
    ),
    CheckSpec(
        "arguments_valid", "R05", "must",
        "arguments match the tool's registered input schema",
        "Register the schema the model is given, and pass on its arguments unchanged.",
    ),
    CheckSpec(
        "call_rate", "R06", "should",
        "a turn stays under 60 calls a minute",
        "Cache or batch, or have the run request raise calls_per_minute.",
    ),
    CheckSpec(
        "call_size", "R07", "must",
        "the body of a call is at most 1 MiB",
        "Send references instead of contents, or cut them.",
    ),
    CheckSpec(
        "actor", "R09", "must",
        "X-Pipelines-Actor-Id, where sent, is a call path such as supervisor/refunds",
        "Join labels of letters, digits and _ . : @ - by /, without blanks or empty labels.",
    ),
    CheckSpec(
        "trace", "R10", "must",
        "trace events, where sent, have the documented shape",
        "See docs/trace-events.md.",
    ),
    # What tools answer.
    CheckSpec(
        "unwrapped", "R03", "must",
        "the agent works with the response in the reply's envelope, not with the envelope",
        'Return body["response"] from the tool; the rest is for the trace.',
    ),
    CheckSpec(
        "decoded_once", "R04", "must",
        "a response that is an object is used as it is",
        "Do not decode body[\"response\"] a second time: objects and arrays arrive decoded.",
    ),
    CheckSpec(
        "text_response", "R04", "should",
        "a response that is text reaches the agent as that text",
        "Pass strings on unchanged; text is not JSON and must not be decoded.",
    ),
    CheckSpec(
        "array_response", "R04", "should",
        "a response that is an array is used as it is",
        "Expect any JSON value in body[\"response\"], not only objects.",
    ),
    CheckSpec(
        "error_response", "R03", "must",
        "a tool's error in the envelope (source error) is data, and the turn is answered",
        "Hand the error to the model like any other result.",
    ),
    CheckSpec(
        "refusal_survived", "R05", "should",
        "a call refused with 422 becomes a tool error, and the turn is answered",
        "Catch HTTP errors in the tool and return them to the model.",
    ),
    CheckSpec(
        "retries_unavailable", "R08", "should",
        "a call refused with 503 and retryable is made again",
        "Retry 429, 503 and 408 up to four times with backoff and jitter, 0.5 to 2.5 s a wait.",
    ),
    CheckSpec(
        "retries_rate_limit", "R08", "should",
        "a call refused with 429 is made again, not before Retry-After has passed",
        "Retry 429 like 503, but wait as many seconds as Retry-After says.",
    ),
    CheckSpec(
        "slow_tool", "R19", "should",
        "a tool that takes its time is waited for",
        "Give tool calls a timeout of 120 s: simulated tools may take 3 to 20 s.",
    ),
    # Sessions.
    CheckSpec(
        "sessions_apart", "R22", "must",
        "turns posted at once keep to their own proxy URL, token and data",
        "Build the agent inside the request handler; keep URL and token in the request's scope, "
        "never in globals, clients or singletons.",
    ),
    CheckSpec(
        "no_late_call", "R22", "should",
        "no call is made after the turn was answered",
        "Await every tool call before answering; the token is revoked when the session ends.",
    ),
    CheckSpec(
        "token_kept", "R22", "must",
        "run token and auth value appear in no answer, URL, argument or trace",
        "Keep secrets out of prompts, transcripts, metadata and query strings.",
    ),
)  # fmt: skip

BY_ID = {spec.id: spec for spec in CATALOGUE}
