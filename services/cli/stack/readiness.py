"""Waiting until what was started can be used, or saying why it cannot."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import httpx

from services.cli.errors import CliError
from services.cli.escaping import printable
from services.cli.stack.processes import Child

_ASK_EVERY_S = 0.15
_CONFIGURATION = 2


class Waiting:
    """Asks children's `/readyz`. One client for all of them; close it."""

    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        # trust_env is off: a proxy variable must not send local traffic elsewhere.
        self._http = httpx.AsyncClient(trust_env=False, timeout=2.0)

    async def close(self) -> None:
        await self._http.aclose()

    async def until_ready(
        self, endpoints: Mapping[str, str], children: Mapping[str, Child]
    ) -> None:
        """Returns when all are ready.

        Raises:
            CliError: one ended, or was not ready in time; with its last log lines and what to do.
        """
        waits = [
            asyncio.create_task(self._one(children[name], url)) for name, url in endpoints.items()
        ]
        try:
            for finished in asyncio.as_completed(waits):
                await finished
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _one(self, child: Child, url: str) -> None:
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self._deadline_s
        why = "it did not answer"
        while loop.time() < give_up_at:
            if child.pid is None:
                raise ended(child)
            try:
                response = await self._http.get(f"{url}/readyz")
                if response.is_success:
                    return
                why = f"it says {printable(response.text.strip())[:300]}"
            except httpx.TransportError:
                why = "it did not answer"
            await asyncio.sleep(_ASK_EVERY_S)
        raise CliError(
            f"{child.name} was not ready within {self._deadline_s:g} s: {why}.\n"
            f"The end of its log, {child.log_file}:\n{child.tail()}\n"
            f"If the machine is busy, try again with a longer --ready-deadline."
        )


def ended(child: Child) -> CliError:
    """A child ended that should not have: what it said and what to do."""
    code = child.exit_code
    how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended ({code})"
    log = child.tail()
    if code == _CONFIGURATION:
        todo = "Correct the setting that it names."
    elif "No space left on device" in log or "ENOSPC" in log:
        todo = "The disk is full: free space, or choose another --dir."
    else:
        todo = "The log says why; report it if it is not clear from it."
    return CliError(f"{child.name} {how}.\nThe end of its log, {child.log_file}:\n{log}\n{todo}")
