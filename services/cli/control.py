"""The control API, for the one command that needs it: secrets of agents are resolved there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from services.cli.errors import CliError
from services.cli.stack.directory import StackDirectory
from services.cli.stack.services import CONTROL, CONTROL_TOKEN

CONTROL_URL = "WINDTUNNEL_CONTROL_URL"


class ControlApi:
    """Asks the API. Never shows its token."""

    def __init__(self, url: str, token: str) -> None:
        self._url, self._token = url.rstrip("/"), token

    async def post(self, path: str, timeout_s: float) -> Any:
        """The answer to a request without a body.

        Raises:
            CliError: no answer, or a refusal; in the API's words.
        """
        headers = {"Authorization": f"Bearer {self._token}"}
        try:
            async with httpx.AsyncClient(timeout=timeout_s, trust_env=False) as client:
                answer = await client.post(self._url + path, headers=headers)
            document = answer.json()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            # Not the error's own text: it can quote the header.
            raise CliError(f"{self._url}: no control API answers: {type(error).__name__}") from None
        if answer.is_success:
            return document
        told = document.get("error", {}) if isinstance(document, dict) else {}
        raise CliError(f"{self._url}: {answer.status_code} {told.get('code', '')}: "
                       f"{told.get('message', 'not an answer of the control API')}")  # fmt: skip


def control_api(
    directory: Path, url: str = "", environ: Mapping[str, str] | None = None
) -> ControlApi:
    """The API that the user means: an option's or the environment's URL with the token in
    WINDTUNNEL_CONTROL_TOKEN, else that of the stack in the directory with its own token.

    Raises:
        CliError: nothing says where it is, or its token is missing.
    """
    environ = os.environ if environ is None else environ
    url = url or environ.get(CONTROL_URL, "")
    if url:
        # Of several, as the service takes them, any will do.
        token = environ.get(CONTROL_TOKEN, "").split(",")[0].strip()
        if not token or not token.isascii():
            raise CliError(f"{CONTROL_TOKEN}: set it to a token of the control API at {url}")
        return ControlApi(url, token)
    stack = StackDirectory(directory)
    info = stack.read_info()
    found = info and info.endpoints.get(f"{CONTROL}-0")
    if not found:
        raise CliError(
            f"no stack is running in {directory}: start one with `windtunnel up`, or say where "
            f"the control API is with --control or {CONTROL_URL}"
        )
    return ControlApi(found, stack.control_token())
