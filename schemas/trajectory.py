"""The events of a trajectory: what happened in one session, in order.

A session of 5 turns and 10 tool calls is about 22 events, so each event carries only what is
new. Event ids are `{session_id}:{step}`, where the step says what the event is: `start`, `u3`
(user turn 3), `a3` (agent turn 3), `t7` (tool call 7), `x2` (trace event 2), `end`. A second
event with the same id is ignored by every reader. Where the simulated user has tools, `c2` asks
for its call 2 and `r2` is what that call was answered: a tool call whose `requestor` is `user`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated

from schemas.record import record

SESSION_STARTED = "session_started"
USER_TURN = "user_turn"
AGENT_TURN = "agent_turn"
TOOL_CALLED = "tool_called"
TRACE = "trace"
SESSION_ENDED = "session_ended"
USER_ACTED = "user_acted"
KINDS = (SESSION_STARTED, USER_TURN, AGENT_TURN, TOOL_CALLED, TRACE, SESSION_ENDED, USER_ACTED)

AGENT = "agent"
USER = "user"
"""The two whose tool calls there are: a tool call's `requestor`."""


class EndReason:
    """Why a session ended; every session ends for exactly one of these."""

    GOAL_MET = "goal_met"
    GAVE_UP = "gave_up"
    AGENT_ENDED = "agent_ended"
    AGENT_TIMEOUT = "agent_timeout"
    AGENT_ERROR = "agent_error"
    LIMIT_TURNS = "limit_turns"
    LIMIT_TOOL_CALLS = "limit_tool_calls"
    LIMIT_WALL_TIME = "limit_wall_time"
    LIMIT_TOKENS = "limit_tokens"
    LIMIT_COST = "limit_cost"
    SIMULATOR_INVALID = "simulator_invalid"
    INFRASTRUCTURE_ERROR = "infrastructure_error"

    ALL = (
        GOAL_MET, GAVE_UP, AGENT_ENDED, AGENT_TIMEOUT, AGENT_ERROR, LIMIT_TURNS,
        LIMIT_TOOL_CALLS, LIMIT_WALL_TIME, LIMIT_TOKENS, LIMIT_COST, SIMULATOR_INVALID,
        INFRASTRUCTURE_ERROR,
    )  # fmt: skip
    INVALID = (SIMULATOR_INVALID, INFRASTRUCTURE_ERROR)


@record
class Usage:
    """What one model call, or all those of one turn, consumed."""

    model: Annotated[str, "The model as its provider names it; empty where none was used."] = ""
    input_tokens: Annotated[int, "Tokens read."] = 0
    output_tokens: Annotated[int, "Tokens written."] = 0
    cost_usd: Annotated[float, "Cost in US dollars, 0 where the price is unknown."] = 0.0


@record
class Limits:
    """The bounds of one session; reaching one ends it with a reason of that name."""

    turns: Annotated[int, "User turns over all conversations."] = 12
    tool_calls: Annotated[int, "Tool calls over all conversations."] = 40
    wall_ms: Annotated[int, "Milliseconds from the session's start."] = 600_000
    tokens: Annotated[int, "Tokens that agent and simulators report together; 0: no bound."] = 0
    cost_usd: Annotated[float, "US dollars that are reported together; 0: no bound."] = 0.0


@record
class SessionStarted:
    """A session was admitted: what its simulators need to know, and nothing the judge knows."""

    scenario_id: Annotated[str, "The scenario, unique in its suite."]
    scenario_version: Annotated[str, "The scenario's own version."] = "1"
    category: Annotated[str, "happy, failure-injection, adversarial, load or long-horizon."]
    trial: Annotated[int, "Which repetition of the scenario this is, from 0."]
    seed: Annotated[int, "63-bit seed from which everything random in this session derives."]
    suite: Annotated[str, "The suite's name."]
    suite_hash: Annotated[str, "The suite's content hash, by which the judge finds its brief."]
    agent_id: Annotated[str, "The registered agent under test."]
    agent_fingerprint: Annotated[str, "Hash over what was registered and what the agent said."]
    task_id: Annotated[int, "The decimal id the agent is given for this session."]
    user_brief: Annotated[str, "UserBrief as JSON: for the user simulator alone."]
    tool_brief: Annotated[str, "ToolBrief as JSON: for the tool proxy alone."]
    task_input: Annotated[str, "JSON object handed to the agent as its task's state."] = "{}"
    conversations: Annotated[int, "How many conversations the session has."] = 1
    limits: Annotated[Limits, "The session's bounds."]
    planned_at_ms: Annotated[int, "When the session was planned to start; lateness counts."] = 0
    variation: Annotated[str, "Which of the scenario's variations was drawn, if it has any."] = ""
    injection_plan: Annotated[str, "What the seed has planned to go wrong, as JSON."] = ""
    attempt: Annotated[
        int, "0; above that a trial played again, spoilt by its simulator before."
    ] = 0


@record
class UserTurn:
    """The simulated user said something, or ended the conversation."""

    text: Annotated[str, "What the user says; empty when the user only ends."]
    ending: Annotated[
        str | None, "goal_met or gave_up end the session, conversation_over this conversation."
    ] = None
    invalid: Annotated[str | None, "What the simulator did wrong; such a session is invalid."] = (
        None
    )
    usage: Annotated[Usage | None, "What the user simulator's model consumed."] = None
    latency_ms: Annotated[int, "Milliseconds the simulator took."] = 0
    think_ms: Annotated[int, "Milliseconds the user thought before; not in the latency."] = 0
    replayed: Annotated[
        bool | None, "Users with a recording: whether it was said again; null for the others."
    ] = None


@record
class UserActed:
    """The simulated user uses a tool of its own; the tool proxy performs it."""

    call: Annotated[int, "Ordinal of the user's call in its session, from 1."]
    tool: Annotated[str, "The tool's name, as the user has it."]
    arguments: Annotated[str, "The arguments as a JSON object."] = "{}"
    usage: Annotated[Usage | None, "What the user simulator's model consumed to decide it."] = None
    latency_ms: Annotated[int, "Milliseconds the simulator took to decide it."] = 0


@record
class AgentTurn:
    """The agent answered one turn, or failed to."""

    outcome: Annotated[
        str, "ok, timeout, error, or infrastructure where the fault is not the agent's."
    ]
    final_response: Annotated[str, "The answer's text; empty unless the outcome is ok."] = ""
    messages: Annotated[str | None, "The agent's rich messages as a JSON array, if any."] = None
    metadata: Annotated[str | None, "The agent's metadata as a JSON object, if any."] = None
    soft_warnings: Annotated[tuple[str, ...], "What was dropped from the answer, and why."] = ()
    error_code: Annotated[str | None, "Machine-readable code of a failed turn."] = None
    error_detail: Annotated[str | None, "What went wrong, for people."] = None
    usage: Annotated[Usage | None, "Tokens and cost that the agent reported."] = None
    latency_ms: Annotated[int, "Milliseconds from request to the whole answer."] = 0
    ended: Annotated[bool, "The agent says the task is over."] = False
    dispatch_id: Annotated[str, "Which posting of this turn was answered."] = ""


@record
class Injection:
    """A failure or content that the tool proxy put in on purpose."""

    rule_id: Annotated[str, "The scenario's rule that asked for it."]
    kind: Annotated[str, "timeout, schema_mismatch, outage, malformed, content, rate_limit, ..."]
    occurrence: Annotated[int, "How often this rule has struck in this session, from 1."]
    detail: Annotated[str, "What exactly was done."] = ""


@record
class ToolCalled:
    """A tool was called through the proxy, and this is what the caller was answered."""

    call: Annotated[int, "Ordinal of its requestor's calls in the session, from 1."]
    tool: Annotated[str, "The tool's registered name."]
    arguments: Annotated[str, "The arguments as JSON, as they were received."]
    response: Annotated[str, "The response: JSON text, or the text itself."]
    response_is_text: Annotated[bool, "True when `response` is text and not JSON."] = False
    source: Annotated[str, "odyssey, injected, passthrough, error or transport_error."]
    status: Annotated[int, "The HTTP status of the proxy's answer."] = 200
    error_code: Annotated[str | None, "Code of the error table when the call was refused."] = None
    matched_rule_index: Annotated[int | None, "Index of the rule that answered, if any."] = None
    injection: Annotated[Injection | None, "What was injected, if anything."] = None
    validation: Annotated[str | None, "Output-schema result as JSON, simulated answers only."] = (
        None
    )
    latency_ms: Annotated[int, "Milliseconds the proxy took, injected delay included."] = 0
    actor: Annotated[str | None, "Call path of the sub-agent, if the agent said."] = None
    actor_declared: Annotated[bool | None, "Whether that path is in the agent's catalogue."] = None
    idempotency_key: Annotated[str | None, "The caller's key for repeating this call."] = None
    state_patch: Annotated[str | None, "RFC 6902 patch of the world's state, if it changed."] = None
    state_hash: Annotated[str | None, "Hash of the world's state after the call."] = None
    dispatch_id: Annotated[str, "Which posting of the turn made the call."] = ""
    dispatched_at_ms: Annotated[int, "When that posting was made; orders those of one turn."] = 0
    requestor: Annotated[str, "agent, or user where the simulated user has tools."] = "agent"
    usage: Annotated[Usage | None, "What a model that played the tool consumed."] = None


@record
class TraceEvent:
    """Something the agent's own runtime reported on the side channel."""

    number: Annotated[int, "Ordinal of the trace event in its session, from 1."]
    type: Annotated[str, "reasoning, plan, handoff, state or custom."]
    payload: Annotated[str, "The reported object as JSON."]
    version: Annotated[int, "Version of the payload's shape."] = 1
    actor: Annotated[str | None, "Call path of the sub-agent, if the agent said."] = None
    after_call: Annotated[int, "Ordinal of the tool call it follows, 0 for none."] = 0
    dispatch_id: Annotated[str, "Which posting of the turn reported it."] = ""
    dispatched_at_ms: Annotated[int, "When that posting was made; orders those of one turn."] = 0


@record
class SessionEnded:
    """The session is over; nothing that comes after counts."""

    reason: Annotated[str, "One of EndReason."]
    detail: Annotated[str, "More about the reason, for people."] = ""
    turns: Annotated[int, "User turns that were put to the agent."] = 0
    tool_calls: Annotated[int, "Tool calls recorded."] = 0
    injected: Annotated[Mapping[str, int], "Injections by rule id."] = field(default_factory=dict)


@record
class TrajectoryEvent:
    """One step of one session. Exactly one of the bodies is set: the one `kind` names."""

    event_id: Annotated[str, "Deterministic: session id, colon, step."]
    session_id: Annotated[str, "The session, which is also the record's key."]
    run_id: Annotated[str, "The run that the session belongs to."]
    kind: Annotated[str, "Which body is set; also a record header."]
    conversation: Annotated[int, "Which conversation of the session, from 1."] = 1
    turn: Annotated[int, "User turn of the session, from 1; 0 before the first."] = 0
    at_ms: Annotated[int, "When it happened, milliseconds since the epoch, UTC."]
    session_started: Annotated[SessionStarted | None, "Body of session_started."] = None
    user_turn: Annotated[UserTurn | None, "Body of user_turn."] = None
    agent_turn: Annotated[AgentTurn | None, "Body of agent_turn."] = None
    tool_called: Annotated[ToolCalled | None, "Body of tool_called."] = None
    trace: Annotated[TraceEvent | None, "Body of trace."] = None
    session_ended: Annotated[SessionEnded | None, "Body of session_ended."] = None
    user_acted: Annotated[UserActed | None, "Body of user_acted."] = None

    @property
    def step(self) -> str:
        """The part of the event id that tells what the event is; what citations name."""
        return self.event_id.rpartition(":")[2]
