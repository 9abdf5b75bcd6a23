"""`doctor --app`: applications imported in a process of their own, and what they may do there."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from services.cli.doctor import Finding, Outcome, Request, diagnose

pytestmark = pytest.mark.req("R24")

GOOD = """
import os, secrets
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

async def dispatch(request):
    given = request.headers.get("authorization", "")
    if not secrets.compare_digest(given, "Bearer app-token-canary"):
        return JSONResponse({"detail": "no"}, status_code=401)
    body = await request.json()
    if body == {"ping": True}:
        return JSONResponse({"ok": True})
    return JSONResponse({"final_response": "hello"})

app = Starlette(routes=[Route("/turns", dispatch, methods=["POST"])])
class Box: inner = app
def create_app(): return app
"""


def doctor(folder: Path, text: str, target: str = "mine:app", **options: object) -> list[Finding]:
    (folder / "mine.py").write_text(text)
    request = Request(app=target, cwd=folder, timeout_s=10, **options)  # type: ignore[arg-type]
    findings = asyncio.run(diagnose(request, lambda _: None))
    _until_nothing_is_left(folder)
    return findings


def _left_behind(folder: Path) -> list[psutil.Process]:
    """Processes that work in the test's folder."""
    found = []
    for process in psutil.process_iter():
        try:
            inside = process.cwd() == str(folder) and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            continue
        if inside:
            found.append(process)
    return found


def _until_nothing_is_left(folder: Path) -> None:
    give_up_at = time.monotonic() + 10  # what was killed takes a moment to go
    while left := _left_behind(folder):
        assert time.monotonic() < give_up_at, f"left behind: {left}"
        time.sleep(0.02)


def outcomes(findings: list[Finding]) -> dict[str, str]:
    return {finding.check: finding.outcome.value for finding in findings}


def test_a_right_application_is_served_and_pinged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("APP_AUTH", "Bearer app-token-canary")
    auth = {"auth_header": "Authorization", "auth_value_ref": "env:APP_AUTH"}
    findings = doctor(tmp_path, GOOD, "mine:Box.inner", **auth)
    assert outcomes(findings) == {
        "import": "ok", "serve": "ok", "auth_value": "ok", "endpoint": "ok", "ping": "ok",
        "ping_wrong_auth": "ok", "ping_no_auth": "ok", "proxy": "skipped", "tools": "skipped",
        "tool_schemas": "skipped",
    }  # fmt: skip
    assert "/turns" in findings[1].detail


def test_ping_before_auth_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APP_AUTH", "Bearer app-token-canary")
    lines = GOOD.splitlines()
    at = next(i for i, line in enumerate(lines) if "body = await" in line)
    auth = next(i for i, line in enumerate(lines) if "given =" in line)
    early = [*lines[:auth], *lines[at : at + 3], *lines[auth:at], *lines[at + 3 :]]
    findings = doctor(
        tmp_path, "\n".join(early), auth_header="Authorization", auth_value_ref="env:APP_AUTH"
    )
    found = outcomes(findings)
    assert found["ping"] == "ok"
    assert found["ping_wrong_auth"] == found["ping_no_auth"] == "failed"
    wrong = next(f for f in findings if f.check == "ping_wrong_auth")
    assert "ping is answered before auth" in wrong.detail
    assert wrong.mend


def test_without_auth_a_closed_application_says_what_it_wants(tmp_path: Path) -> None:
    findings = doctor(tmp_path, GOOD)
    ping = next(f for f in findings if f.check == "ping")
    assert ping.outcome is Outcome.FAILED
    assert "401" in ping.detail
    assert "auth" in ping.mend


def test_an_application_that_breaks_on_the_ping_shows_its_traceback_without_the_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("APP_AUTH", "Bearer app-token-canary")
    text = GOOD.replace(
        "    body = await request.json()\n",
        "    body = await request.json()\n    print(given)\n    body['input']['input']\n",
    )
    findings = doctor(tmp_path, text, auth_header="Authorization", auth_value_ref="env:APP_AUTH")
    ping = next(f for f in findings if f.check == "ping")
    assert ping.outcome is Outcome.FAILED
    assert "500" in ping.detail
    assert any("KeyError" in line for line in ping.lines)
    assert "app-token-canary" not in repr(findings)


def test_a_wrong_path_names_the_right_ones(tmp_path: Path) -> None:
    findings = doctor(tmp_path, GOOD, path="nowhere")
    ping = next(f for f in findings if f.check == "ping")
    assert "404" in ping.detail
    assert ping.lines[0] == "the application takes POST at /turns"


@pytest.mark.parametrize(
    ("text", "target", "detail", "mend"),
    [
        (GOOD, "nosuch:app", "there is no module nosuch", "start the doctor in the folder"),
        (GOOD, "mine.sub:app", "there is no module mine.sub", "start the doctor in the folder"),
        (GOOD, "mine:application", "imports, but has no application", "it has these: app"),
        (GOOD, "mine:create_app", "it takes no arguments, as a factory", "name the application"),
        (GOOD, "mine:Box", "it is a class", "instance"),
        (GOOD, "mine:os", "it is a module, which cannot be called", "instance"),
        ("def app(environ, start_response): pass", "mine:app", "as a WSGI application does", ""),
        ("class F:\n def __call__(self, a, b): pass\n wsgi_app = 1\napp = F()", "mine:app",
         "a F, a WSGI application: wrap it", ""),
        ("import nosuchlibrary", "mine:app", "ModuleNotFoundError: No module named", "--python"),
        ("x = 1\nraise ValueError('no config')", "mine:app",
         "raised ValueError: no config, at {folder}/mine.py, line 2", ""),
        ("def (:", "mine:app", "SyntaxError", ""),
        ("import os\nos.environ['NO_SUCH_SETTING']", "mine:app", "'NO_SUCH_SETTING'", "set it"),
        ("import sys\nsys.exit('bye')", "mine:app", "the process: sys.exit('bye')", "__main__"),
        ("import os\nos._exit(7)", "mine:app", "ended the process: exit code 7", ""),
        ("import os\nos.kill(os.getpid(), 11)", "mine:app", "killed by signal 11", ""),
        ("import os\nos.closerange(3, 100)", "mine:app", "ended the process", ""),
        ("input()", "mine:app", "EOFError", ""),
        ("def f(): f()\nf()", "mine:app", "RecursionError", ""),
        ("def __getattr__(name): raise RuntimeError('lazy')", "mine:app", "lazy", ""),
    ],
)  # fmt: skip
def test_imports_that_fail_say_why_and_what_to_do(
    tmp_path: Path, text: str, target: str, detail: str, mend: str
) -> None:
    first, *rest = doctor(tmp_path, text, target)
    assert (first.check, first.outcome) == ("import", Outcome.FAILED)
    assert detail.format(folder=tmp_path) in first.detail
    assert mend in first.mend
    assert first.mend
    assert {finding.outcome for finding in rest} == {Outcome.SKIPPED}


@pytest.mark.parametrize(
    "text",
    [
        "import time\ntime.sleep(600)",
        "import os, time\nos.fork()\ntime.sleep(600)",
        "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'input()'],"
        " stdin=subprocess.PIPE)\nimport time\ntime.sleep(600)",
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(600)",
        "import socket\ns = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); s.accept()",
        "while True: print('garbage' * 1000)",
    ],
    ids=["sleeps", "forks", "children", "ignores-sigterm", "serves", "prints"],
)
def test_imports_that_hang_are_given_up_and_leave_nothing(tmp_path: Path, text: str) -> None:
    began = time.monotonic()
    first, *_ = doctor(tmp_path, text, import_timeout_s=2.0)
    assert time.monotonic() - began < 30
    assert first.outcome is Outcome.FAILED
    assert "did not end in 2 s" in first.detail
    assert "mine.py, line" in first.detail


def test_what_an_import_prints_and_starts_is_no_trouble(tmp_path: Path) -> None:
    noisy = (
        "import sys, os, threading, time\n"
        'print(\'{"stage": "failed"}\')\n'
        "sys.stdout.buffer.write(bytes(range(256)) * 1000)\n"
        "sys.stderr.write('\\x1b[31m' * 100_000)\n"
        "threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "if os.fork() == 0:\n    time.sleep(600)\n"
    )
    findings = doctor(tmp_path, noisy + GOOD)
    assert outcomes(findings)["serve"] == "ok"


def test_a_fork_that_goes_on_importing_does_not_report_for_its_parent(tmp_path: Path) -> None:
    findings = doctor(tmp_path, "import os\nos.fork()\n" + GOOD)
    assert outcomes(findings)["import"] == "ok"
    assert outcomes(findings)["serve"] == "ok"


@pytest.mark.parametrize(
    ("lifespan", "detail"),
    [
        ("raise RuntimeError('no database')", "its lifespan startup failed"),
        ("import os; os._exit(9)", "its startup ended the process: exit code 9"),
        ("import asyncio; await asyncio.sleep(600)", "its startup did not end in 2 s"),
    ],
)
def test_a_startup_that_fails(tmp_path: Path, lifespan: str, detail: str) -> None:
    text = (
        "import contextlib\nfrom starlette.applications import Starlette\n"
        "@contextlib.asynccontextmanager\nasync def lifespan(app):\n"
        f"    {lifespan}\n    yield\n"
        "app = Starlette(lifespan=lifespan)\n"
    )
    findings = doctor(tmp_path, text, import_timeout_s=2.0)
    serve = findings[1]
    assert (serve.check, serve.outcome) == ("serve", Outcome.FAILED)
    assert serve.detail == detail
    if "database" in lifespan:
        assert any("no database" in line for line in serve.lines)


def test_an_application_that_dies_of_a_ping_is_told(tmp_path: Path) -> None:
    text = GOOD.replace(
        "    given =", "    print('last words', flush=True)\n    os._exit(5)\n    given ="
    )
    findings = doctor(tmp_path, text)
    endpoint = next(f for f in findings if f.check == "endpoint")
    assert endpoint.outcome is Outcome.FAILED
    assert any("last words" in line for line in endpoint.lines)


def test_another_interpreter_can_be_named(tmp_path: Path) -> None:
    first, *_ = doctor(tmp_path, GOOD, python=str(tmp_path / "python9"))
    assert "python9 cannot be started" in first.detail
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # without site-packages
    wrapper.chmod(0o755)
    text = "async def app(scope, receive, send): ..."
    findings = doctor(tmp_path, text, python=str(wrapper))
    assert findings[0].outcome is Outcome.OK
    assert "has no uvicorn" in findings[1].detail


def test_the_process_ends_with_the_doctor(tmp_path: Path) -> None:
    """Also when that is killed without a chance to clean up."""
    (tmp_path / "mine.py").write_text(
        "import time\nprint('importing', flush=True)\ntime.sleep(600)"
    )
    code = (
        "import asyncio, pathlib, os, threading, time\n"
        "from services.cli.doctor import Request, diagnose\n"
        f"folder = pathlib.Path({str(tmp_path)!r})\n"
        "threading.Timer(2, os._exit, [0]).start()\n"
        "asyncio.run(diagnose(Request(app='mine:app', cwd=folder), print))\n"
    )

    root = Path(__file__).resolve().parents[2]
    environ = {**os.environ, "PYTHONPATH": str(root)}
    subprocess.run([sys.executable, "-c", code], env=environ, timeout=60, check=True)
    _until_nothing_is_left(tmp_path)


def test_findings_are_json(tmp_path: Path) -> None:
    from services.cli.doctor.telling import as_document

    findings = doctor(tmp_path, "raise ValueError('\\udcff')")
    assert json.loads(json.dumps(as_document(findings)))["ok"] is False
