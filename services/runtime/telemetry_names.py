"""Every name that spans carry, pinned here and nowhere else.

The `gen_ai.*` and `error.type` names are those of the OpenTelemetry semantic conventions 1.41.0,
where everything of GenAI has the status Development: a later version may rename them, so they are
literals here and follow no package. What the conventions have no word for is `windtunnel.*`.
"""

from __future__ import annotations

from dataclasses import dataclass

SEMCONV_VERSION = "1.41.0"
SCHEMA_URL = f"https://opentelemetry.io/schemas/{SEMCONV_VERSION}"
SCOPE = "windtunnel"
"""The instrumentation scope."""

SESSION = "session"
TURN = "turn"
USER = "user"
TOOL = "tool"
TRACE = "trace"
JUDGE = "judge"
JUDGE_CALL = "judge_call"
ROLES = (SESSION, TURN, USER, TOOL, TRACE, JUDGE, JUDGE_CALL)
"""The kinds of spans there are: what `windtunnel.span` says."""

INVOKE_WORKFLOW = "invoke_workflow"
INVOKE_AGENT = "invoke_agent"
EXECUTE_TOOL = "execute_tool"
CHAT = "chat"
EVALUATE = "evaluate"
"""The conventions have an event for evaluations, and no operation."""
OPERATIONS = {
    SESSION: INVOKE_WORKFLOW,
    TURN: INVOKE_AGENT,
    USER: INVOKE_AGENT,
    TOOL: EXECUTE_TOOL,
    JUDGE: EVALUATE,
    JUDGE_CALL: CHAT,
}
"""Values of `gen_ai.operation.name`; a reported trace event is no operation."""

EVALUATION_EVENT = "gen_ai.evaluation.result"
"""A span event: one dimension's score."""

# Resource attributes.
SERVICE_NAME = "service.name"
SERVICE_VERSION = "service.version"
SERVICE_INSTANCE = "service.instance.id"


@dataclass(frozen=True, slots=True)
class Attribute:
    """One entry of the catalogue.

    Attributes:
        spans: The kinds of spans that can carry it.
        content: It quotes what was said, and is exported only with WINDTUNNEL_OTLP_CONTENTS.
    """

    name: str
    meaning: str
    spans: tuple[str, ...] = ROLES
    content: bool = False


OPERATION = Attribute(
    "gen_ai.operation.name", "Which kind of operation it is.",
    (SESSION, TURN, USER, TOOL, JUDGE, JUDGE_CALL),
)  # fmt: skip
CONVERSATION_ID = Attribute("gen_ai.conversation.id", "The session's id.")
WORKFLOW = Attribute("gen_ai.workflow.name", "The scenario's id.", (SESSION,))
AGENT_ID = Attribute("gen_ai.agent.id", "The registered agent.", (SESSION, TURN))
AGENT_NAME = Attribute(
    "gen_ai.agent.name", "The agent's name, which its builds share; `user_simulator` and `judge`.",
    (SESSION, TURN, USER, JUDGE),
)  # fmt: skip
TOOL_NAME = Attribute("gen_ai.tool.name", "The tool, as it was called.", (TOOL,))
TOOL_CALL_ID = Attribute("gen_ai.tool.call.id", "The id of the event that records it.", (TOOL,))
TOOL_TYPE = Attribute("gen_ai.tool.type", "Always `function`.", (TOOL,))
REQUEST_MODEL = Attribute(
    "gen_ai.request.model", "The model that was asked, where ours was.",
    (USER, TOOL, JUDGE, JUDGE_CALL),
)  # fmt: skip
RESPONSE_MODEL = Attribute(
    "gen_ai.response.model", "The model that the agent, or the judge's provider, reports.",
    (TURN, JUDGE_CALL),
)  # fmt: skip
INPUT_TOKENS = Attribute(
    "gen_ai.usage.input_tokens", "Tokens read, where a model is known to have been used.",
    (TURN, USER, TOOL, JUDGE, JUDGE_CALL),
)  # fmt: skip
OUTPUT_TOKENS = Attribute(
    "gen_ai.usage.output_tokens", "Tokens written, likewise.",
    (TURN, USER, TOOL, JUDGE, JUDGE_CALL),
)  # fmt: skip
ERROR_TYPE = Attribute(
    "error.type",
    "What went wrong: the code of a turn's or tool call's error, why a session is invalid, what a "
    "call of the judge's model raised.",
    (SESSION, TURN, USER, TOOL, JUDGE_CALL),
)
EVALUATION_NAME = Attribute("gen_ai.evaluation.name", "Event: the dimension.", (JUDGE,))
EVALUATION_VALUE = Attribute("gen_ai.evaluation.score.value", "Event: its value.", (JUDGE,))
EVALUATION_LABEL = Attribute(
    "gen_ai.evaluation.score.label",
    "Event: `pass` or `fail` of gates; else `scored`, `unscored` or `not_applicable`.", (JUDGE,),
)  # fmt: skip

EVALUATION_EXPLANATION = Attribute(
    "gen_ai.evaluation.explanation", "Event: the score's reason.", (JUDGE,), content=True
)
INPUT_MESSAGES = Attribute(
    "gen_ai.input.messages", "The user turn, as JSON.", (TURN,), content=True
)
OUTPUT_MESSAGES = Attribute(
    "gen_ai.output.messages", "What was said, as JSON.", (TURN, USER), content=True
)
TOOL_ARGUMENTS = Attribute(
    "gen_ai.tool.call.arguments", "The arguments, as JSON.", (TOOL,), content=True
)
TOOL_RESULT = Attribute(
    "gen_ai.tool.call.result", "What the caller was answered.", (TOOL,), content=True
)

KIND = Attribute("windtunnel.span", "Which kind of span it is, as in this table.")
RUN_ID = Attribute("windtunnel.run.id", "The run.")
EVENT = Attribute(
    "windtunnel.event", "The step of the trajectory that it belongs to, as citations name it."
)
CONVERSATION = Attribute(
    "windtunnel.conversation", "Which conversation of the session, from 1.",
    (TURN, USER, TOOL, TRACE),
)  # fmt: skip
TURN_NUMBER = Attribute(
    "windtunnel.turn", "User turn of the session, from 1.", (TURN, USER, TOOL, TRACE)
)
SUITE = Attribute("windtunnel.suite", "The suite's name.", (SESSION,))
SCENARIO = Attribute("windtunnel.scenario.id", "The scenario.", (SESSION, JUDGE))
CATEGORY = Attribute("windtunnel.category", "The scenario's category.", (SESSION, JUDGE))
TRIAL = Attribute("windtunnel.trial", "Which repetition, from 0.", (SESSION, JUDGE))
ATTEMPT = Attribute(
    "windtunnel.attempt", "0; above that, played again for a fault of the simulator's.",
    (SESSION, JUDGE),
)  # fmt: skip
END_REASON = Attribute("windtunnel.end_reason", "Why the session ended.", (SESSION, JUDGE))
TURNS = Attribute("windtunnel.turns", "User turns that were put to the agent.", (SESSION,))
TOOL_CALLS = Attribute("windtunnel.tool_calls", "Tool calls that were recorded.", (SESSION,))
OUTCOME = Attribute(
    "windtunnel.outcome",
    "`ok`, `timeout`, `error`, `infrastructure`; `unanswered` when the session ended meanwhile.",
    (TURN,),
)
ENDING = Attribute("windtunnel.user.ending", "What the user ended with this turn.", (USER,))
ACT = Attribute("windtunnel.user.tool", "The tool of its own that the user uses.", (USER,))
COST = Attribute(
    "windtunnel.cost_usd", "US dollars, where known.", (TURN, USER, TOOL, JUDGE, JUDGE_CALL)
)
REQUESTOR = Attribute("windtunnel.tool.requestor", "`agent` or `user`.", (TOOL,))
SOURCE = Attribute(
    "windtunnel.tool.source",
    "Who answered: `odyssey`, `injected`, `passthrough`, `error` or `transport_error`.", (TOOL,),
)  # fmt: skip
INJECTION_KIND = Attribute("windtunnel.injection.kind", "What was injected.", (TOOL,))
INJECTION_RULE = Attribute("windtunnel.injection.rule", "By which rule.", (TOOL,))
ACTOR = Attribute("windtunnel.actor", "Call path of the sub-agent.", (TOOL, TRACE))
TRACE_TYPE = Attribute("windtunnel.trace.type", "What was reported: `plan`, ...", (TRACE,))
VALID = Attribute("windtunnel.valid", "False where something spoilt the session.", (JUDGE,))
PASSED = Attribute("windtunnel.passed", "Absent where nobody can say.", (JUDGE,))

CATALOGUE: tuple[Attribute, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Attribute)
)
