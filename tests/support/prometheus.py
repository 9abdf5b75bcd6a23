"""Debian's Prometheus on a configuration, for as long as a test needs it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.lanes import require_lane
from tests.support.running_stack import free_port, wait_until


class Prometheus:
    """A server that runs."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def ask(self, query: str) -> list[dict[str, Any]]:
        """The samples that a PromQL query gives now."""
        result: list[dict[str, Any]] = self._get("query", query=query)["result"]
        return result

    def figure(self, query: str) -> float:
        """What a query comes to, of which the answer is one number."""
        (sample,) = self.ask(query)
        return float(sample["value"][1])

    def rules(self) -> list[dict[str, Any]]:
        """Recording and alert rules, and how their last evaluation went."""
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def _get(self, what: str, **params: str) -> Any:
        answer = self._client.get(f"/api/v1/{what}", params=params).json()
        assert answer["status"] == "success", answer
        return answer["data"]


@contextmanager
def prometheus(config: Path, scratch: Path) -> Iterator[Prometheus]:
    """A server on `config/prometheus.yml`, for as long as the block lasts."""
    found = shutil.which("prometheus")
    require_lane("prometheus", found is not None, "none here: `make prometheus` installs it")
    base = f"http://127.0.0.1:{(port := free_port())}"
    log = scratch / "prometheus.log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            [
                str(found), "--config.file=prometheus.yml",
                f"--web.listen-address=127.0.0.1:{port}",
                f"--storage.tsdb.path={scratch / 'tsdb'}",
            ],
            cwd=config, stdout=out, stderr=out, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    try:
        with httpx.Client(base_url=base, trust_env=False, timeout=10) as client:

            def ready() -> bool:
                try:
                    return client.get("/-/ready").is_success
                except httpx.TransportError:
                    return False

            wait_until(ready, 60, "Prometheus", log.read_text)
            yield Prometheus(client)
    finally:
        server.terminate()
        server.wait(30)
