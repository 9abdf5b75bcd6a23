"""The store contract on Debian's ClickHouse server, over the native protocol."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from services.runtime.store import StoreRejected, open_store
from tests.contract.processes import Process, free_port
from tests.contract.store_suite import StoreSuite
from tests.lanes import require_lane

SERVER = shutil.which("clickhouse-server") or shutil.which("clickhouse-server", path="/usr/sbin")
PASSWORD = "hunter2:/@ %"
QUOTED = "hunter2%3A%2F%40%20%25"

_CONFIG = """<?xml version="1.0"?>
<yandex>
  <logger><level>warning</level><log>{dir}/server.log</log><errorlog>{dir}/error.log</errorlog></logger>
  <tcp_port>{port}</tcp_port><listen_host>127.0.0.1</listen_host>
  <path>{dir}/data/</path><tmp_path>{dir}/tmp/</tmp_path><timezone>UTC</timezone>
  <users_config>{dir}/users.xml</users_config>
  <default_profile>default</default_profile><default_database>default</default_database>
  <mark_cache_size>67108864</mark_cache_size>
</yandex>
"""
_USERS = f"""<?xml version="1.0"?>
<yandex>
  <profiles><default><max_memory_usage>2000000000</max_memory_usage></default></profiles>
  <quotas><default/></quotas>
  <users><windtunnel>
    <password>{PASSWORD}</password><networks><ip>127.0.0.1</ip></networks>
    <profile>default</profile><quota>default</quota>
  </windtunnel></users>
</yandex>
"""


class ClickHouseServer:
    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        config = directory / "config.xml"
        config.write_text(_CONFIG.format(dir=directory, port=self.port))
        (directory / "users.xml").write_text(_USERS)
        command = [str(SERVER), f"--config-file={config}"]
        self._process = Process(command, directory / "out.log", self._answers, directory)
        self.start, self.kill = self._process.start, self._process.kill

    def url(self, database: str) -> str:
        return f"clickhouse://windtunnel:{QUOTED}@127.0.0.1:{self.port}/{database}"

    def unreachable_url(self) -> str:
        return f"clickhouse://windtunnel:{QUOTED}@127.0.0.1:{free_port()}/x"

    def _answers(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouseServer]:
    require_lane("clickhouse", SERVER is not None, "run `make clickhouse` as root")
    server = ClickHouseServer(tmp_path_factory.mktemp("clickhouse"))
    server.start()
    yield server
    server.kill()


class TestClickHouse(StoreSuite):
    def test_a_wrong_password_is_refused_and_not_shown(self, backend: ClickHouseServer) -> None:
        wrong = backend.url("default").replace("hunter2", "wrong-secret")
        store = open_store(wrong, deadline_s=5)
        with pytest.raises(StoreRejected) as caught:
            store.query("SELECT 1")
        assert "wrong-secret" not in f"{caught.value!r} {caught.value.__context__!r} {store!r}"


@pytest.mark.parametrize(
    "url",
    [
        "clickhouse://user:hunter2/x@host:9000/db",
        "clickhouse://user:hunter2@host:nine/db",
        "clickhouse://user:hunter2@/db",
        "mysql://user:hunter2@host/db",
        "clickhouse://user:hunter2@host/d-b",
        "clickhouse://[user:hunter2@host/db",
    ],
)
def test_a_bad_url_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(StoreRejected) as caught:
        open_store(url)
    assert "hunter2" not in str(caught.value)
