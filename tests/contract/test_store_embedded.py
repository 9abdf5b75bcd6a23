"""The store contract on the embedded engine, through its real process; and that process itself."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from services.runtime.store import StoreUnavailable, open_store
from tests.contract.processes import Process, free_port
from tests.contract.store_suite import StoreSuite

ROOT = Path(__file__).parents[2]


class EmbeddedProcess:
    def __init__(self, directory: Path, *more: str) -> None:
        self.data, self.port = directory / "data with space", free_port()
        self.base = f"http://127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "services.embedded_store"]
        command += ["--data", str(self.data), "--port", str(self.port), *more]
        self._process = Process(command, directory / "out.log", self._ready, ROOT)
        self.start, self.kill = self._process.start, self._process.kill
        self.terminate = self._process.terminate

    def url(self, database: str) -> str:
        return f"embedded+{self.base}/{database}"

    def unreachable_url(self) -> str:
        return f"embedded+http://user:hunter2@127.0.0.1:{free_port()}"

    def _ready(self) -> bool:
        try:
            return httpx.get(f"{self.base}/readyz", trust_env=False).is_success
        except httpx.TransportError:
            return False


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedProcess]:
    process = EmbeddedProcess(tmp_path_factory.mktemp("embedded"), "--max-body-mib", "48")
    process.start()
    yield process
    process.kill()


@pytest.fixture
def http(backend: EmbeddedProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=backend.base, timeout=30, trust_env=False) as client:
        yield client


class TestEmbedded(StoreSuite):
    pass


class TestHttpInterface:
    def test_health(self, http: httpx.Client) -> None:
        for path in ("/ping", "/healthz", "/readyz", "/"):
            assert (http.get(path).status_code, http.get(path).text) == (200, "Ok.\n")

    def test_formats(self, http: httpx.Client) -> None:
        answer = http.post("/", content="SELECT 1 AS x, 'a' AS y")
        assert answer.json()["data"] == [[1, "a"]]
        assert answer.headers["content-type"] == "application/json"
        assert http.post("/", content="SELECT 1 AS x FORMAT JSONEachRow").json() == {"x": 1}
        assert http.get("/", params={"query": "SELECT 1, 2 FORMAT CSV"}).text == "1,2\n"
        tsv = {"default_format": "TabSeparated"}
        assert http.post("/", params=tsv, content="SELECT 1, 2").text == "1\t2\n"

    def test_data_beside_the_statement_or_behind_it(self, http: httpx.Client) -> None:
        http.post("/", content="CREATE TABLE ins (a Int64, b String) ENGINE=MergeTree ORDER BY a")
        insert = "INSERT INTO ins (a, b) FORMAT "
        for params, content in (
            ({"query": insert + "CSV"}, b'1,"x, y"\n'),
            ({}, (insert + 'JSONEachRow\n{"a": 2, "b": "FORMAT CSV"}\n').encode()),
            ({"query": insert + "RowBinary"}, b"\x03" + b"\0" * 7 + b"\x03\xff\n\0"),
            ({}, b"INSERT INTO ins VALUES (4, 'v')"),
            ({"query": "INSERT INTO ins VALUES"}, b"(5, 'w')"),
            ({}, b"INSERT INTO ins SELECT 6, 's'"),
            ({"query": insert + "CSV"}, b""),
        ):
            assert http.post("/", params=params, content=content).status_code == 200
        rows = http.post("/", content="SELECT a, hex(b) FROM ins ORDER BY a").json()["data"]
        texts = [b"x, y", b"FORMAT CSV", b"\xff\n\0", b"v", b"w", b"s"]
        assert rows == [[n, text.hex().upper()] for n, text in enumerate(texts, start=1)]

    def test_errors_carry_clickhouses_text_and_code(self, http: httpx.Client) -> None:
        for sql, status, code in (
            ("SELECT FROM WHERE", 400, "62"),
            ("SELECT * FROM nowhere", 404, "60"),
            ("SELECT throwIf(1)", 500, "395"),
            (b"SELECT '\xff'", 400, "62"),
            ("SELECT 1 FORMAT Nonsense", 404, "73"),
        ):
            answer = http.post("/", content=sql)
            found = (answer.status_code, answer.headers["x-clickhouse-exception-code"])
            assert found == (status, code)
            assert answer.text.startswith(f"Code: {code}. DB::Exception: ")

    def test_read_only(self, http: httpx.Client) -> None:
        ways: list[tuple[dict[str, str], dict[str, str]]] = [
            ({"readonly": "1"}, {}),
            ({}, {"X-ClickHouse-Readonly": "1"}),
        ]
        for params, headers in ways:
            for sql in (
                "CREATE DATABASE forbidden",
                "SET readonly = 0",
                "SELECT 1 SETTINGS readonly = 0",
                "SELECT 1; CREATE DATABASE forbidden",
                "SELECT * FROM file('/etc/passwd', 'LineAsString')",
            ):
                answer = http.post("/", params=params, headers=headers, content=sql)
                assert answer.status_code == 403, sql
            assert http.post("/", params=params, headers=headers, content="SELECT 1").is_success
        # Reading is all a GET does, as on a server; and nothing of that sticks.
        for read in (http.get, http.head):
            assert read("/", params={"query": "CREATE DATABASE forbidden"}).status_code == 403
        assert http.post("/", content="CREATE DATABASE allowed").is_success

    def test_settings_parameters_and_database_last_one_request(self, http: httpx.Client) -> None:
        setting = "SELECT getSetting('max_threads'), currentDatabase() FORMAT CSV"
        usual = http.post("/", content=setting).text
        params = {"max_threads": "3", "database": "system", "query_id": "x"}
        assert http.post("/", params=params, content=setting).text == '3,"system"\n'
        assert http.post("/", content=setting).text == usual
        typed = http.post("/", params={"param_x": "it's"}, content="SELECT {x:String} AS x")
        assert typed.json()["data"] == [["it's"]]
        assert http.post("/", params={"nonsense": "1"}, content="SELECT 1").status_code == 404

    def test_a_body_over_the_limit_is_cut_off(self, http: httpx.Client) -> None:
        insert = {"query": "INSERT INTO nowhere FORMAT CSV"}
        answer = http.post("/", params=insert, content=b"x" * (49 * 1024 * 1024))
        assert answer.status_code == 413
        assert http.get("/ping").is_success

    def test_web_pages_are_refused(self, http: httpx.Client) -> None:
        for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}):
            assert http.post("/", content="SELECT 1", headers=headers).status_code == 403

    def test_the_loop_answers_while_the_engine_works(self, http: httpx.Client) -> None:
        slow = threading.Thread(target=http.post, args=("/",), kwargs={"content": _SLOW})
        slow.start()
        time.sleep(0.2)
        begun = time.monotonic()
        assert http.get("/ping").is_success
        assert time.monotonic() - begun < 0.5
        slow.join()

    def test_a_statement_cannot_hold_the_others_up_for_ever(self, http: httpx.Client) -> None:
        answer = http.post("/", params={"max_execution_time": "1"}, content=_ENDLESS)
        assert (answer.status_code, answer.headers["x-clickhouse-exception-code"]) == (504, "159")


_SLOW = "SELECT sleepEachRow(0.5) FROM numbers(2) SETTINGS max_block_size = 1"
_ENDLESS = "SELECT count() FROM numbers(1000000000000) WHERE NOT ignore(sipHash64(number))"


class TestProcess:
    def test_a_held_directory_and_a_used_port_are_said(
        self, backend: EmbeddedProcess, tmp_path: Path
    ) -> None:
        for data, port, word in (
            (backend.data, free_port(), "in use by another process"),
            (tmp_path / "other", backend.port, "cannot listen"),
            (Path("/dev/null/x"), free_port(), "cannot be used"),
        ):
            command = [sys.executable, "-m", "services.embedded_store", "--data", str(data)]
            command += ["--port", str(port)]
            done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=30)
            assert done.returncode == 2
            assert word in done.stderr
            assert len(done.stderr.splitlines()) == 1

    def test_a_full_queue_says_so_and_terminating_drains(self, tmp_path: Path) -> None:
        process = EmbeddedProcess(tmp_path, "--max-waiting", "2")
        process.start()
        answers: list[int] = []

        def post() -> None:
            answers.append(httpx.post(process.base, content=_SLOW, trust_env=False).status_code)

        threads = [threading.Thread(target=post) for _ in range(2)]
        try:
            for thread in threads:
                thread.start()
            time.sleep(0.3)
            assert httpx.get(f"{process.base}/readyz", trust_env=False).status_code == 503
            store = open_store(process.url("default"), deadline_s=0.2)
            with pytest.raises(StoreUnavailable, match="2 statements wait"):
                store.query("SELECT 1")
            assert process.terminate() == 0
            for thread in threads:
                thread.join()
            assert answers == [200, 200]
        finally:
            process.kill()
