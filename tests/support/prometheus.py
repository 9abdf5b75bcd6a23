"""Debian's Prometheus on a configuration, for as long as a test needs it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.lanes import require_lane
from tests.support.running_stack import free_port, wait_until

Ask = Callable[[str], list[dict[str, Any]]]


@contextmanager
def prometheus(config: Path, scratch: Path) -> Iterator[Ask]:
    """A server on `config/prometheus.yml`; what is yielded answers PromQL with samples."""
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

            def ask(query: str) -> list[dict[str, Any]]:
                answer = client.get("/api/v1/query", params={"query": query}).json()
                assert answer["status"] == "success", answer
                result: list[dict[str, Any]] = answer["data"]["result"]
                return result

            wait_until(ready, 60, "Prometheus", log.read_text)
            yield ask
    finally:
        server.terminate()
        server.wait(30)
