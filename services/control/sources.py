"""Source of code agents: taken in and published before the registration that names it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial

from schemas.agent_document import CodeDocument
from schemas.errors import InvalidDocument, Problem
from schemas.registry import AgentRegistration, CodeSource
from services.runtime.addresses import AllowList
from services.runtime.sources.files import SourceRefused
from services.runtime.sources.git import fetch_git
from services.runtime.sources.intake import intake
from services.runtime.sources.publishing import Publish, publish_source


class PublishedSources:
    """Takes in what is uploaded, a few at a time, and publishes it in parts.

    Parts whose registration never follows do no harm: nothing reads them, and the same source
    published again has the same keys.
    """

    def __init__(self, publish: Publish, allow: AllowList, at_once: int) -> None:
        """`allow` is what git may reach besides the public internet."""
        self._publish = publish
        self._git = partial(fetch_git, allow=allow)
        self._places = asyncio.Semaphore(at_once)

    async def publish(self, code: CodeDocument) -> CodeSource:
        """What a registration says about the source that a document gives.

        Raises:
            InvalidDocument: it cannot be used.
            BusError: it was not acknowledged.
        """
        async with self._places:
            try:
                archive = await intake(code, git=self._git)
            except SourceRefused as error:
                raise InvalidDocument([Problem("code", str(error))]) from None
            await publish_source(self._publish, archive)
            return archive.code(code.entrypoint)


def is_registered(code: CodeSource, agents: Iterable[AgentRegistration]) -> bool:
    """Whether some agent has this source, so that it was published whole. Its entrypoint may
    differ: a module of the same files."""
    return any(agent.code is not None and _same(agent.code, code) for agent in agents)


def _same(one: CodeSource, other: CodeSource) -> bool:
    return (one.source_hash, one.origin, one.origin_ref, one.files, one.parts) == (
        other.source_hash, other.origin, other.origin_ref, other.files, other.parts,
    )  # fmt: skip
