"""How the demo agent is registered: both builds under one name, so that they are compared."""

from __future__ import annotations

import json

from deploy.demo.agent import MODEL, SYSTEM_PROMPT_ID
from deploy.demo.builds import BUILDS
from deploy.demo.world import world
from schemas.registry import AgentRegistration, ToolRegistration

AGENT_NAME = "order-support"
AUTH_VALUE_REF = "env:DEMO_AGENT_AUTH"
RUN_TIMEOUT_S = 60


def agent_registration(agent_id: str, name: str, endpoint: str, build: str) -> AgentRegistration:
    """The registration of one build of the demo agent.

    Args:
        name: What the builds share; `AGENT_NAME` in the demo.
        endpoint: URL of its `/dispatch`.
        build: `good` or `regressed`.

    Raises:
        KeyError: there is no such build.
    """
    return AgentRegistration(
        agent_id=agent_id,
        name=name,
        endpoint=endpoint,
        auth_header="Authorization",
        auth_value_ref=AUTH_VALUE_REF,
        tools=demo_tools(),
        run_timeout_s=RUN_TIMEOUT_S,
        require_rich_transcript=True,
        build={
            "build": BUILDS[build].name,
            "model": MODEL,
            "system_prompt_id": SYSTEM_PROMPT_ID,
        },
    )


def demo_tools() -> tuple[ToolRegistration, ...]:
    """The tools of the world `order_support`, as an agent registers them."""
    return tuple(
        ToolRegistration(
            name=tool.name,
            description=tool.description,
            input_schema=json.dumps(tool.input_schema, sort_keys=True),
            output_schema=json.dumps(tool.output_schema, sort_keys=True),
        )
        for tool in world.tools
    )
