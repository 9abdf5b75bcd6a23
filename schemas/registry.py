"""What is published once and looked up often: suites, agents; and what nobody could read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated

from schemas.record import record


@record
class SuiteScenario:
    """One scenario of a suite, whole."""

    scenario_id: Annotated[str, "Unique in the suite."]
    file: Annotated[str, "The file it was read from, relative to the suite's folder."]
    document: Annotated[str, "The scenario as JSON."]


@record
class Suite:
    """A versioned collection of scenarios, named by the hash of its content."""

    suite_hash: Annotated[str, "Hash over name, version and scenarios; also the record's key."]
    name: Annotated[str, "What run requests call it."]
    version: Annotated[str, "The suite's version."]
    owner: Annotated[str, "Who keeps it in step with production."]
    scenarios: Annotated[tuple[SuiteScenario, ...], "The scenarios, by id."]
    published_at_ms: Annotated[int, "When it was published."] = 0


@record
class ToolRegistration:
    """One tool of an agent."""

    name: Annotated[str, "Matches ^[A-Za-z_][A-Za-z0-9_-]{0,127}$, unique in its agent."]
    description: Annotated[str, "What it does."] = ""
    input_schema: Annotated[str, "JSON Schema of the arguments object, as JSON."]
    output_schema: Annotated[str | None, "JSON Schema of the response, as JSON, if any."] = None
    mode: Annotated[str, "sandbox or passthrough."] = "sandbox"
    target: Annotated[str | None, "URL of the real tool, passthrough only."] = None
    target_kind: Annotated[str, "http: arguments are posted to it; mcp: an MCP server."] = "http"
    target_tool: Annotated[str | None, "The tool's name at its MCP server, if it differs."] = None
    target_auth_header: Annotated[str | None, "Name of the real tool's auth header, if any."] = None
    target_auth_ref: Annotated[str | None, "env:NAME or file:PATH where its value is found."] = None
    target_timeout_s: Annotated[int, "Seconds that the real tool may take."] = 30


@record
class ChatSettings:
    """What makes an agent of a model behind an OpenAI-compatible chat endpoint."""

    model: Annotated[str, "The model, as its endpoint names it."]
    system_prompt: Annotated[str, "The prompt that makes it the agent."] = ""
    parameters: Annotated[str, "JSON object laid over each request, such as temperature."] = "{}"
    max_rounds: Annotated[int, "Model calls of one turn; the last must answer in text."] = 16


@record
class CodeSource:
    """Uploaded source of an agent that runs in a sandbox here."""

    source_hash: Annotated[str, "Hash of the archive, whose parts are on the sources topic."]
    entrypoint: Annotated[str, "module:function that is called for each turn."] = "main:run"
    origin: Annotated[str, "paste, zip or git."]
    origin_ref: Annotated[str, "For git: URL and the commit it was resolved to."] = ""
    files: Annotated[int, "Files in the archive."] = 0
    parts: Annotated[int, "Parts that the archive was published in."] = 1


@record
class RasaSettings:
    """How a Rasa assistant is driven over its REST channel."""

    channel: Annotated[str, "Name of the REST channel in the webhook's path."] = "rest"
    tracker: Annotated[bool, "Read the tracker's events into the trajectory."] = True
    token_ref: Annotated[str | None, "env:NAME or file:PATH of the HTTP API's auth token."] = None


@record
class AgentRegistration:
    """An agent under test: where it is and what it may call. Secrets by reference only."""

    agent_id: Annotated[str, "Unique; also the record's key."]
    name: Annotated[str, "Shared by the builds that are compared with one another."]
    kind: Annotated[str, "http for the runtime contract, code, openai or rasa."] = "http"
    endpoint: Annotated[str, "URL that each turn is posted to; a base URL for openai and rasa."]
    auth_header: Annotated[str | None, "Name of the agent's own auth header, if any."] = None
    auth_value_ref: Annotated[str | None, "env:NAME or file:PATH where its value is found."] = None
    tools: Annotated[tuple[ToolRegistration, ...], "The tools it may call."] = ()
    actors: Annotated[tuple[str, ...], "Declared call paths of sub-agents."] = ()
    run_timeout_s: Annotated[int, "Seconds that a turn may take, at most 1800."] = 300
    require_rich_transcript: Annotated[bool, "Fail sessions left without gradeable messages."] = (
        False
    )
    build: Annotated[Mapping[str, str], "What identifies the build: image, model, prompt ids."] = (
        field(default_factory=dict)
    )
    registered_at_ms: Annotated[int, "When."] = 0
    code: Annotated[CodeSource | None, "Its source, kind code only."] = None
    chat: Annotated[ChatSettings | None, "Its model and prompt, kind openai only."] = None
    rasa: Annotated[RasaSettings | None, "How it is driven, kind rasa only."] = None


@record
class SourcePart:
    """A part of the archive of an agent's source; agents are registered after their parts."""

    source_hash: Annotated[str, "Hash of the whole archive."]
    part: Annotated[int, "Which part this is, from 0."]
    parts: Annotated[int, "How many there are."]
    data: Annotated[bytes, "The part's bytes."]


@record
class DeadLetter:
    """A record that a service could not read, kept as it was."""

    topic: Annotated[str, "Where it came from."]
    partition: Annotated[int, "Its partition."]
    offset: Annotated[int, "Its offset."]
    key: Annotated[bytes, "Its key."]
    value: Annotated[bytes, "Its value."]
    headers: Annotated[Mapping[str, str], "Its headers."] = field(default_factory=dict)
    service: Annotated[str, "Who could not read it."]
    error: Annotated[str, "Why."]
    at_ms: Annotated[int, "When."] = 0
