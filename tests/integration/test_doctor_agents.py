"""`windtunnel doctor` against real agents and a real proxy, as a user calls it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from typer.testing import CliRunner, Result

from deploy.demo.agent import create_app
from deploy.demo.builds import BUILDS
from deploy.example.agent import dispatch as example_dispatch
from services.cli.app import app
from services.cli.commands import doctor as doctor_command
from services.cli.doctor import proxy as doctor_proxy
from services.tool_proxy.app import BASE
from services.tool_proxy.session import ProxyCore
from tests.support.http_server import raw_server, serve
from tests.support.proxy_server import serving
from tests.support.tool_proxy import MemoryLog, make_world

pytestmark = pytest.mark.req("R24")

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "doctor-token-canary"
AUTH = ("--auth-header", "Authorization", "--auth-value-ref", "env:THE_AGENT_AUTH")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("THE_AGENT_AUTH", f"Bearer {TOKEN}")
    monkeypatch.setenv("AGENT_TOKEN", TOKEN)
    for name in ("WINDTUNNEL_BOOTSTRAP", "WINDTUNNEL_STORE", "WINDTUNNEL_CONFIG"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def demo() -> Iterator[str]:
    with serve(create_app(BUILDS["good"], TOKEN)) as url:
        yield f"{url}/dispatch"


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(app, ["doctor", *arguments])
    assert TOKEN not in result.output, "the secret was shown"
    assert "Traceback" not in result.output
    return result


def checks(*arguments: str) -> dict[str, dict[str, Any]]:
    result = run(*arguments, "--json")
    document = json.loads(result.stdout)
    failed = any(check["outcome"] == "failed" for check in document["checks"])
    assert (result.exit_code, document["ok"]) == (int(failed), not failed)
    return {check["check"]: check for check in document["checks"]}


def outcomes(*arguments: str) -> dict[str, str]:
    return {name: check["outcome"] for name, check in checks(*arguments).items()}


def test_a_line_for_each_check(demo: str) -> None:
    result = run("--url", demo, *AUTH)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["ok", "auth_value"], ["ok", "endpoint"], ["ok", "ping"], ["ok", "ping_wrong_auth"],
        ["ok", "ping_no_auth"], ["skipped", "proxy"], ["skipped", "tools"],
        ["skipped", "tool_schemas"],
    ]  # fmt: skip
    assert "no --proxy is given" in result.stdout
    assert result.stderr == "5 ok, 0 warning, 0 failed, 3 skipped\n"


def test_a_registration_is_checked_whole(tmp_path: Path, demo: str) -> None:
    document = json.loads((ROOT / "deploy" / "demo" / "agents" / "good.json").read_text())
    document |= {"endpoint": demo, "auth_value_ref": "env:THE_AGENT_AUTH"}
    (tmp_path / "agent.json").write_text(json.dumps(document))
    found = checks("--file", "agent.json")
    assert {name: check["outcome"] for name, check in found.items()} == {
        "registration": "ok", "auth_value": "ok", "endpoint": "ok", "ping": "ok",
        "ping_wrong_auth": "ok", "ping_no_auth": "ok", "proxy": "skipped", "tools": "ok",
        "tool_schemas": found["tool_schemas"]["outcome"],
    }  # fmt: skip
    del document["auth_header"]
    document["tools"][0] = {"type": "function", "function": {"name": "x", "parameters": {}}}
    (tmp_path / "agent.json").write_text(json.dumps(document))
    found = checks("--file", "agent.json", "--fix-tools", "fixed.json")
    assert found["registration"]["outcome"] == found["tools"]["outcome"] == "failed"
    assert found["ping"]["outcome"] == "skipped"
    assert any("auth_header and auth_value_ref" in line for line in found["registration"]["lines"])
    assert "as OpenAI's chat API has it" in found["tools"]["lines"][0]
    assert "fixed.json" in found["tools"]["mend"]
    assert outcomes("--tools", "fixed.json")["tools"] == "ok"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("agent_id: [", "not YAML"),
        ("- a\n- b\n", "expected a mapping"),
        ('agent_id: a\nname: a\nendpoint: http://x/\ncolour: red\n', "unknown field 'colour'"),
    ],
)  # fmt: skip
def test_a_registration_that_is_none(tmp_path: Path, document: str, message: str) -> None:
    (tmp_path / "agent.yaml").write_text(document)
    found = checks("--file", "agent.yaml")["registration"]
    assert found["outcome"] == "failed"
    assert any(message in line for line in found["lines"]), found


def test_the_example_agent_keeps_to_the_contract(tmp_path: Path) -> None:
    tools = str(ROOT / "deploy" / "example" / "agent.json")
    hours = {"get_opening_hours": {"opens": "9:00", "closes": "20:00"}}
    (tmp_path / "responses.json").write_text(json.dumps(hours))
    with serve(Starlette(routes=[Route("/dispatch", example_dispatch, methods=["POST"])])) as url:
        found = checks(
            "--url", f"{url}/dispatch", *AUTH, "--tools", tools, "--conformance",
            "--instruction", "When does the central branch open?",
            "--responses", "responses.json",
        )  # fmt: skip
    conformance = {n: c for n, c in found.items() if n.startswith("conformance.")}
    assert len(conformance) > 20
    assert found["conformance.turn_answered"]["outcome"] == "ok"
    assert found["conformance.call_auth"]["outcome"] == "ok"
    # What it does not do is advised only; a refused call is where the example is too simple.
    assert found["conformance.retries_unavailable"]["outcome"] == "warning"
    assert found["conformance"]["outcome"] == (
        "failed" if any(c["outcome"] == "failed" for c in conformance.values()) else "ok"
    )


async def _open(_: Request) -> Response:
    return JSONResponse({"ok": True})


async def _redirect(_: Request) -> Response:
    return RedirectResponse("http://169.254.169.254/")


async def _refuses(_: Request) -> Response:
    return JSONResponse({"detail": f"no: Bearer {TOKEN}"}, status_code=422)


@pytest.mark.parametrize(
    ("handler", "expected", "words"),
    [
        (_open, {"endpoint": "ok", "ping": "ok", "ping_wrong_auth": "failed"}, "before auth"),
        (_redirect, {"endpoint": "failed", "ping": "skipped"}, "redirects are not followed"),
        (_refuses, {"endpoint": "ok", "ping": "failed"}, "answered 422"),
    ],
)
def test_agents_with_mistakes(handler: Any, expected: dict[str, str], words: str) -> None:
    with serve(Starlette(routes=[Route("/d", handler, methods=["POST"])])) as url:
        found = checks("--url", f"{url}/d", *AUTH)
    assert {name: found[name]["outcome"] for name in expected} == expected
    assert any(words in check["detail"] for check in found.values())
    assert all(check["mend"] for check in found.values() if check["outcome"] == "failed")


def test_agents_that_do_not_answer() -> None:
    found = checks("--url", "http://127.0.0.1:1/d", *AUTH)
    assert (found["endpoint"]["outcome"], found["ping"]["outcome"]) == ("failed", "skipped")

    def silent(connection: Any) -> None:
        connection.recv(65_536)
        connection.recv(65_536)

    with raw_server(silent) as url:
        found = checks("--url", f"{url}/d", *AUTH, "--timeout", "0.3")
    assert "no answer within 0.3 s" in found["endpoint"]["detail"]

    def not_http(connection: Any) -> None:
        connection.recv(65_536)
        connection.sendall(b"SSH-2.0-OpenSSH\r\n")

    with raw_server(not_http) as url:
        assert outcomes("--url", f"{url}/d", *AUTH)["endpoint"] == "failed"


def test_an_auth_value_that_is_missing_or_half(
    demo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = ("--auth-header", "Authorization", "--auth-value-ref")
    found = checks("--url", demo, *header, "env:NO_SUCH_VARIABLE")
    assert found["auth_value"]["outcome"] == "failed"
    assert "env:NO_SUCH_VARIABLE has no value here" in found["auth_value"]["detail"]
    assert found["ping"]["outcome"] == "skipped"
    monkeypatch.setenv("THE_AGENT_AUTH", TOKEN)
    found = checks("--url", demo, *AUTH)
    assert found["auth_value"]["outcome"] == "warning"
    assert "Bearer" in found["auth_value"]["mend"]
    (tmp_path / "secret").write_text(f"Bearer {TOKEN}\n")
    found = checks("--url", demo, *header, "file:secret")
    assert "is not in a folder for secrets" in found["auth_value"]["detail"]
    monkeypatch.setenv("WINDTUNNEL_SECRET_FILES", str(tmp_path))
    assert outcomes("--url", demo, *header, "file:secret")["ping"] == "ok"


@pytest.mark.req("R21")
def test_the_real_proxy_is_recognised_with_and_without_its_path() -> None:
    with serving(MemoryLog(ProxyCore({"desk": make_world()}))) as server:
        for url in (server.url, f"{server.url}{BASE}", f"{server.url}{BASE}/"):
            found = checks("--proxy", url)
            assert list(found) == ["proxy"]
            assert found["proxy"]["outcome"] == "ok", found
        (line,) = found["proxy"]["lines"]
        curl = line.partition(": ")[2]
        done = subprocess.run(["sh", "-c", curl], capture_output=True, text=True, check=True)
        assert done.stdout == "401\n"
    assert doctor_proxy.BASE == BASE


@pytest.mark.parametrize(
    ("status", "outcome"), [(401, "warning"), (404, "failed"), (200, "failed"), (503, "failed")]
)
def test_what_is_no_proxy(status: int, outcome: str) -> None:
    async def answer(_: Request) -> Response:
        return Response("gateway", status_code=status)

    with serve(Starlette(routes=[Route("/{rest:path}", answer, methods=["POST"])])) as url:
        assert outcomes("--proxy", url) == {"proxy": outcome}
    assert outcomes("--proxy", "http://127.0.0.1:1") == {"proxy": "failed"}


def test_datasets_are_checked(tmp_path: Path) -> None:
    (tmp_path / "good.csv").write_text("user;state\nHi;{}\n")
    (tmp_path / "odd.csv").write_text("user,notes\nHi,x\n")
    (tmp_path / "bad.csv").write_text("user,state\nHi,x\n,{}\n")
    assert outcomes("--csv", "good.csv") == {"dataset": "ok"}
    assert outcomes("--csv", "odd.csv") == {"dataset": "warning"}
    found = checks("--csv", "bad.csv")["dataset"]
    assert found["detail"] == "bad.csv has 2 problems"
    assert found["lines"][0].startswith("bad.csv:2: state: expected a JSON object")
    assert outcomes("--csv", "none.csv") == {"dataset": "failed"}


def test_tools_files(tmp_path: Path) -> None:
    tools = tmp_path / "tools.json"
    tools.write_text('[{"name": "x", "parameters": {"type": "object"}}]')
    assert outcomes("--tools", "tools.json") == {"tools": "failed", "tool_schemas": "skipped"}
    kept = tmp_path / "kept.json"
    kept.write_text("mine")
    found = checks("--tools", "tools.json", "--fix-tools", "kept.json")["tools"]
    assert "kept.json cannot be written" in found["detail"]
    assert kept.read_text() == "mine"
    checks("--tools", "tools.json", "--fix-tools", "fixed.json")
    assert outcomes("--tools", "fixed.json") == {"tools": "ok", "tool_schemas": "warning"}
    tools.write_text("[]")
    assert outcomes("--tools", "tools.json")["tools"] == "warning"
    tools.write_text("[")
    assert outcomes("--tools", "tools.json")["tools"] == "failed"
    assert outcomes("--tools", "none.json")["tools"] == "failed"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--app", "a:b", "--url", "http://x/"), "one agent at a time"),
        (("--app", "app.py"), "expected module:attribute"),
        (("--app", "folder/app:app"), "expected module:attribute"),
        (("--url", "localhost:80"), "--url: expected a URL such as"),
        (("--url", "http://user:hunter2@x/"), "without user and password"),
        (("--proxy", "nowhere"), "--proxy: expected a URL"),
        (("--url", "http://x/", "--auth-header", "A"), "belong together"),
        (("--url", "http://x/", "--auth-header", "A b", "--auth-value-ref", "env:X"), "an HTTP"),
        (("--url", "http://x/", "--auth-header", "A", "--auth-value-ref", "Bearer hunter2"),
         "expected env:NAME or file:PATH"),
        (("--file", "a.yaml", "--auth-header", "A", "--auth-value-ref", "env:X"), "registration"),
        (("--file", "a.yaml", "--tools", "t.json"), "leave one out"),
        (("--fix-tools", "x.json"), "needs a list to rewrite"),
        (("--conformance",), "needs an agent"),
        (("--url", "http://x/", "--responses", "r.json"), "is for --conformance"),
        (("--url", "http://x/", "--timeout", "0"), "--timeout"),
    ],
)  # fmt: skip
def test_usage_errors_are_2_and_repeat_no_secret(arguments: tuple[str, ...], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert "hunter2" not in result.output


def test_the_command_line_takes_what_the_page_says() -> None:
    page = (ROOT / "docs" / "doctor.md").read_text()
    helped = subprocess.run(
        [sys.executable, "-m", "services.cli", "doctor", "--help"],
        cwd=ROOT, capture_output=True, text=True, check=True, env={"COLUMNS": "200"},
    ).stdout  # fmt: skip
    options = {word.strip("`,.:;)") for word in page.split() if word.startswith("`--")}
    assert len(options) > 8
    for option in options:
        assert option in helped, option
    assert doctor_command.doctor.__doc__ is not None
