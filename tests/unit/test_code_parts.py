"""The pure parts of code mode: command line, filter, what passes the relay, and outcomes."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from services.dispatcher.code import outcomes
from services.dispatcher.code.command import Descriptors, command
from services.dispatcher.code.interpreter import Interpreter, this_interpreter
from services.dispatcher.code.limits import CodeLimits
from services.dispatcher.code.relay import Upstream
from services.dispatcher.code.sandbox import Report
from services.dispatcher.code.seccomp import filter_program
from services.dispatcher.code.tools import SandboxUnavailable, staging_folder
from services.dispatcher.settings import DispatcherSettings
from services.runtime.agents.redaction import Redactor

PYTHON = Interpreter("/py/bin/python3", ("/usr", "/py"), (("usr/lib", "/lib"),))
FDS = Descriptors(control=5, info=6, seccomp=7, files={"/etc/passwd": 8})
TOKEN = "gAAAAAB-the-token"
REDACTOR = Redactor([TOKEN])


def words(**options: Any) -> list[str]:
    made: dict[str, Any] = {
        "bwrap": "/usr/bin/bwrap", "staging": None, "interpreter": PYTHON,
        "source": Path("/cache/abc"), "limits": CodeLimits(), "fds": FDS, **options,
    }  # fmt: skip
    return command(**made)


def pairs(argv: list[str], flag: str) -> list[tuple[str, str]]:
    return [(argv[n + 1], argv[n + 2]) for n, word in enumerate(argv) if word == flag]


@pytest.mark.req("R20")
def test_a_sandbox_shares_nothing_and_keeps_nothing() -> None:
    argv = words()
    assert argv[0] == "/usr/bin/bwrap"
    for flag in ("--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent",
                 "--new-session", "--clearenv"):  # fmt: skip
        assert flag in argv
    assert "--share-net" not in argv
    assert "--bind" not in argv
    assert pairs(argv, "--ro-bind") == [
        ("/usr", "/usr"), ("/py", "/py"), ("/cache/abc", "/app"),
    ]  # fmt: skip
    inside = argv[argv.index("--") :]
    assert inside[1:6] == ["/py/bin/python3", "-I", "-S", "-B", "-u"]
    variables = dict(pairs(argv, "--setenv"))
    assert set(variables) == {
        "PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "LANG", "MALLOC_ARENA_MAX",
    }  # fmt: skip
    last = [argv[n + 1] for n, word in enumerate(argv) if word == "--remount-ro"]
    assert last == ["/dev", "/"]
    assert argv.index("--remount-ro") > max(n for n, word in enumerate(argv) if word == "--tmpfs")


@pytest.mark.req("R20")
def test_root_gives_up_being_root_first_and_mounts_what_only_root_reaches() -> None:
    argv = words(staging="/mnt", limits=CodeLimits(packages=Path("/root/packages")))
    assert argv[0] == "unshare"
    assert argv.index("setpriv") < argv.index("/usr/bin/bwrap")
    staged = argv[argv.index("/mnt") + 1 : argv.index("setpriv") - 1]
    assert staged == ["0", "/py", "1", "/cache/abc", "2", "/root/packages"]
    assert pairs(argv, "--ro-bind") == [
        ("/usr", "/usr"), ("/mnt/0", "/py"), ("/mnt/1", "/app"), ("/mnt/2", "/opt/packages"),
    ]  # fmt: skip
    dropped = argv[argv.index("setpriv") : argv.index("/usr/bin/bwrap")]
    assert {"--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"} <= set(dropped)


@pytest.mark.req("R20")
def test_what_is_mounted_over_hides_nothing_that_is_needed(tmp_path: Path) -> None:
    assert staging_folder(["/nowhere/x"]) in ("/mnt", "/media", "/srv", "/opt", "/tmp")
    everywhere = ["/mnt/a", "/media/a", "/srv/a", "/opt/a", "/tmp/a", "/var/tmp/a"]
    with pytest.raises(SandboxUnavailable, match="can be mounted over"):
        staging_folder(everywhere)
    assert staging_folder(everywhere[:4]) in ("/tmp", "/var/tmp")


@pytest.mark.req("R20")
def test_the_limits_of_the_operator_reach_the_sandbox() -> None:
    settings = DispatcherSettings(
        token_secret="x" * 20, code_memory_mb=300, code_processes=9, code_open_files=50,
        code_disk_mb=5, code_cpu_s=7, code_concurrency=3, code_pool=1, code_pool_idle_s=4,
        code_packages="/srv/packages",
    )  # fmt: skip
    limits = CodeLimits.of(settings)
    assert limits == CodeLimits(
        memory_mb=300, processes=9, open_files=50, disk_mb=5, cpu_s=7, concurrency=3, pool=1,
        pool_idle_s=4.0, packages=Path("/srv/packages"),
    )  # fmt: skip
    argv = words(limits=limits)
    options = json.loads(argv[-1])
    assert options["limits"] == {
        "RLIMIT_AS": [300 << 20] * 2, "RLIMIT_NPROC": [9, 9], "RLIMIT_NOFILE": [50, 50],
        "RLIMIT_FSIZE": [5 << 20] * 2, "RLIMIT_CPU": [7, 8], "RLIMIT_CORE": [0, 0],
    }  # fmt: skip
    assert {argv[n + 1] for n, word in enumerate(argv) if word == "--size"} == {str(5 << 20)}
    assert CodeLimits.of(DispatcherSettings(token_secret="x" * 20)) == CodeLimits()


@pytest.mark.req("R20")
def test_the_interpreter_is_the_real_one_without_its_environment() -> None:
    found = this_interpreter()
    assert Path(found.executable).exists()
    assert not Path(found.executable).is_symlink()
    assert sys.prefix not in found.folders or sys.prefix == sys.base_prefix
    assert any(Path(found.executable).is_relative_to(folder) for folder in found.folders)


def allowed(program: bytes, architecture: int, number: int, argument: int = 0) -> int:
    """Runs a filter as the kernel does; what it answers."""
    steps = [struct.unpack_from("<HBBI", program, at) for at in range(0, len(program), 8)]
    data = struct.pack("<IIQ", number, architecture, 0) + struct.pack("<QQQQQQ", argument, *[0] * 5)
    at = held = 0
    while True:
        code, yes, no, value = steps[at]
        at += 1
        if code == 0x20:
            (held,) = struct.unpack_from("<I", data, value)
        elif code == 0x06:
            return int(value)
        else:
            met = {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}[code]
            at += yes if met else no


@pytest.mark.req("R20")
def test_the_filter_refuses_what_it_lists_and_allows_the_rest() -> None:
    allow, eperm, enosys, kill = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000
    program = filter_program("x86_64")
    assert program is not None
    x64 = 0xC000003E
    for number in (0, 1, 2, 3, 9, 41, 57, 59, 60, 202, 257, 332):
        assert allowed(program, x64, number) == allow
    for number in (101, 165, 155, 272, 308, 310, 311, 321, 298, 29):
        assert allowed(program, x64, number) == eperm
    for number in (435, 425, 319, 0x40000000 + 1):
        assert allowed(program, x64, number) == enosys
    assert allowed(program, x64, 56, 0x11) == allow
    assert allowed(program, x64, 56, 0x003D0F00) == allow  # what pthread_create asks for
    for flag in (0x00020000, 0x02000000, 0x04000000, 0x10000000, 0x20000000, 0x40000000):
        assert allowed(program, x64, 56, flag | 0x11) == eperm
    assert allowed(program, 0x40000003, 1) == kill  # 32-bit calls have other numbers
    arm = filter_program("aarch64")
    assert arm is not None
    assert allowed(arm, 0xC00000B7, 117) == eperm
    assert allowed(arm, 0xC00000B7, 64) == allow
    assert allowed(arm, x64, 1) == kill
    assert filter_program("riscv64") is None


@pytest.mark.req("R20")
@pytest.mark.parametrize(
    ("proxy_url", "target", "passes"),
    [
        ("http://h:1/api/odyssey-proxy/runs/j", "/api/odyssey-proxy/runs/j/tools/a", True),
        ("http://h:1/api/odyssey-proxy/runs/j", "/api/odyssey-proxy/tools/a?x=1", True),
        ("http://h:1/api/odyssey-proxy/runs/j", "/api/odyssey-proxy/trace", True),
        ("http://h:1/api/odyssey-proxy/runs/j", "/api/odyssey-proxy/tools/a%20b", True),
        ("https://h/at/api/odyssey-proxy/runs/j", "/at/api/odyssey-proxy/tools/a", True),
        ("https://h/at/api/odyssey-proxy/runs/j", "/api/odyssey-proxy/tools/a", False),
        ("http://h/own/path", "/own/path/tools/a", True),
        ("http://h/own/path", "/own/metrics", False),
        ("http://h:1/api/odyssey-proxy/runs/j", "/metrics", False),
        ("http://h:1/api/odyssey-proxy/runs/j", "/api/odyssey-proxy/../metrics", False),
        ("http://h:1/api/odyssey-proxy/runs/j", "/api/odyssey-proxy/%2e%2e/metrics", False),
        ("http://h:1/api/odyssey-proxy/runs/j", "/api/odyssey-proxy/a%2f..%2fb", False),
        ("http://h:1/api/odyssey-proxy/runs/j", "/api/odyssey-proxy/a%0d%0ab", False),
        ("http://h:1/api/odyssey-proxy/runs/j", "http://h:1/api/odyssey-proxy/a", False),
    ],
)
def test_what_a_relay_lets_pass(proxy_url: str, target: str, passes: bool) -> None:
    upstream = Upstream(None, proxy_url)  # type: ignore[arg-type]
    assert upstream.offers(target) is passes


@pytest.mark.req("R20", "R22")
def test_an_outcome_never_holds_a_token_not_even_part_of_one() -> None:
    for cut in range(1, 60):
        report = Report("raised", "x" * (300 - cut) + TOKEN, "y" * cut + TOKEN + "z" * 390)
        printed = (TOKEN + "p" * (250 - cut)).encode()
        detail = outcomes.reported(report, printed, REDACTOR).detail
        assert "gAAAAA" not in detail
        assert "the-token" not in detail
        assert len(detail) < 1000


@pytest.mark.req("R20")
@pytest.mark.parametrize(
    ("status", "code", "says"),
    [
        (0, "code_exited", "exited with status 0"),
        (1, "code_exited", "exited with status 1"),
        (128 + 9, "code_exited", "killed by SIGKILL"),
        (128 + 24, "code_cpu_exceeded", "out of CPU time"),
        (255, "code_exited", "exited with status 255"),
        (None, "code_exited", "broke off its answer"),
    ],
)
def test_how_a_process_ended(status: int | None, code: str, says: str) -> None:
    failed = outcomes.exited(status, b"", REDACTOR)
    assert (failed.outcome, failed.code) == ("error", code)
    assert says in failed.detail
    assert outcomes.reported(Report("made up"), b"", REDACTOR).code == "code_exited"
