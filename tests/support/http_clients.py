"""Requests through HTTP clients that are not ours: curl, and Node's and Go's standard libraries."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lanes import require_lane
from tests.support.reference_agents import built

CLIENTS = ("curl", "node", "go")


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class HttpClient:
    """Sends one request at a time, in a process of its own."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self._folder = name, folder
        if name == "curl":
            require_lane("curl", shutil.which("curl") is not None, "curl is not installed")
        else:
            self._command = built(name, "client", folder)

    def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Reply:
        if self.name == "curl":
            return self._curl(method, url, headers, body)
        told = {
            "method": method, "url": url, "headers": dict(headers),
            "body": base64.b64encode(body).decode(),
        }  # fmt: skip
        done = subprocess.run(
            self._command, input=json.dumps([told]).encode(), capture_output=True, check=False,
            timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()
        [reply] = json.loads(done.stdout)
        return Reply(reply["status"], reply["headers"], base64.b64decode(reply["body"]))

    def _curl(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Reply:
        head = self._folder / "head"
        options = [part for item in headers.items() for part in ("--header", ": ".join(item))]
        done = subprocess.run(
            ["curl", "--silent", "--show-error", "--max-time", "50", "--request", method,
             "--dump-header", str(head), *options, "--data-binary", "@-", url],
            input=body, capture_output=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()
        # What comes before the last head is a 100 Continue.
        lines = head.read_text("latin-1").strip().split("\r\n\r\n")[-1].splitlines()
        fields = (line.partition(":") for line in lines[1:])
        found = {name.lower(): value.strip() for name, _, value in fields}
        return Reply(int(lines[0].split()[1]), found, done.stdout)
