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


@record
class AgentRegistration:
    """An agent under test: where it is and what it may call. Secrets by reference only."""

    agent_id: Annotated[str, "Unique; also the record's key."]
    name: Annotated[str, "Shared by the builds that are compared with one another."]
    kind: Annotated[str, "http for the runtime contract."] = "http"
    endpoint: Annotated[str, "URL that each turn is posted to."]
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
