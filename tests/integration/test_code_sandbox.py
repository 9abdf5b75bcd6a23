"""What an agent's code can reach and take in its sandbox: everything here tries to break out."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import socket
from pathlib import Path
from typing import Any

import psutil
import pytest

from services.runtime.agents.client import AgentFailed
from tests.support.code_agents import TOKEN, desk, make_request, require_bubblewrap, until

_PR_SET_CHILD_SUBREAPER = 36
PREFIX = "import json, os, socket, subprocess, sys, time\n"
CALL = """
def run(t, *, proxy_url, run_token):
    return {'final_response': json.dumps(found(t))}
"""


@pytest.fixture(autouse=True)
def _lane() -> None:
    require_bubblewrap()


def found(folder: Path, body: str, text: str = "", **limits: Any) -> Any:
    """What `found(task_input)` returns inside."""
    indented = "".join(f"    {line}\n" for line in body.strip().splitlines())
    source = f"{PREFIX}\ndef found(t):\n{indented}{CALL}"

    async def go() -> Any:
        async with desk(folder, **limits) as one:
            return json.loads((await one.ask(source, text, timeout_s=60)).final_response)

    return asyncio.run(go())


def failure(folder: Path, body: str, timeout_s: int = 60, **limits: Any) -> AgentFailed:
    indented = "".join(f"    {line}\n" for line in body.strip().splitlines())
    source = f"{PREFIX}\ndef run(t, *, proxy_url, run_token):\n{indented}"

    async def go() -> None:
        async with desk(folder, **limits) as one:
            await one.ask(source, timeout_s=timeout_s)

    with pytest.raises(AgentFailed) as caught:
        asyncio.run(go())
    return caught.value


@pytest.mark.req("R20")
def test_no_network_but_loopback_and_no_names(tmp_path: Path) -> None:
    local, anywhere = ("127.0.0.1", 0), ("0.0.0.0", 0)
    with socket.create_server(local) as ours, socket.create_server(anywhere) as other:
        body = """
tried = {}
for host, port in json.loads(t["user_instruction"]):
    try:
        socket.create_connection((host, port), timeout=3).close()
        tried[f"{host}:{port}"] = "connected"
    except OSError as error:
        tried[f"{host}:{port}"] = type(error).__name__
for host in ("example.com", "localhost"):
    try:
        tried[host] = socket.getaddrinfo(host, 80, type=socket.SOCK_STREAM)[0][4][0]
    except OSError as error:
        tried[host] = type(error).__name__
tried["interfaces"] = [name for _, name in socket.if_nameindex()]
try:
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.sendto(b"x", ("8.8.8.8", 53))
    tried["udp"] = "sent"
except OSError as error:
    tried["udp"] = type(error).__name__
try:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    tried["raw"] = "opened"
except OSError as error:
    tried["raw"] = type(error).__name__
return tried
"""
        ports = [ours.getsockname()[1], other.getsockname()[1]]
        targets = [("1.1.1.1", 80), ("127.0.0.1", ports[0]), ("127.0.0.1", ports[1])]
        targets += [("169.254.169.254", 80)]
        tried = found(tmp_path, body, json.dumps(targets))
    assert tried == {
        "1.1.1.1:80": "OSError",
        f"127.0.0.1:{ports[0]}": "ConnectionRefusedError",
        f"127.0.0.1:{ports[1]}": "ConnectionRefusedError",
        "169.254.169.254:80": "OSError",
        "example.com": "gaierror",
        "localhost": tried["localhost"],
        "interfaces": ["lo"],
        "udp": "OSError",
        "raw": "PermissionError",
    }
    assert tried["localhost"] in ("127.0.0.1", "::1")


@pytest.mark.req("R20", "R22")
def test_nothing_of_ours_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    canary = "canary-that-must-stay-outside"
    monkeypatch.setenv("WINDTUNNEL_TOKEN_SECRET", canary)
    outside = tmp_path / "secret.txt"
    outside.write_text(canary)
    body = f"""
seen = {{}}
for path in ("/etc/shadow", "/proc/1/root/etc/shadow", "/root/.ssh", "/work",
             "/home", "/var", "/run", "/sys", "/boot", "/proc/kcore", "/dev/mem", "/dev/vda",
             {str(outside)!r}, {str(Path(__file__).parents[2])!r}):
    try:
        seen[path] = os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(50).decode()
    except OSError as error:
        seen[path] = type(error).__name__
text = ""
for pid in filter(str.isdigit, os.listdir("/proc")):
    for name in ("environ", "cmdline", "maps"):
        try:
            text += open(f"/proc/{{pid}}/{{name}}", "rb").read().decode(errors="replace")
        except OSError:
            pass
seen["canary"] = {canary!r} in text or {canary!r} in str(os.environ)
text += open("/opt/driver.py").read() + str(os.environ)
seen["named"] = [word for word in ("windtunnel", "simulat", "under test") if word in text.lower()]
seen["pids"] = len([pid for pid in os.listdir("/proc") if pid.isdigit()])
seen["ids"] = [os.getuid(), os.geteuid(), os.getgid(), os.getgroups()]
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
seen["caps"] = [status[name].strip() for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")]
seen["no_new_privs"] = status["NoNewPrivs"].strip()
seen["seccomp"] = status["Seccomp"].strip()
seen["fds"] = sorted(int(fd) for fd in os.listdir("/proc/self/fd"))
seen["host"] = socket.gethostname()
return seen
"""
    seen = found(tmp_path / "cache", body)
    refused = ("FileNotFoundError", "PermissionError", "NotADirectoryError")
    assert seen.pop("/home") == ["agent"]
    for path in [path for path in seen if path.startswith("/")]:
        assert seen.pop(path) in refused, path
    assert seen.pop("fds")[:3] == [0, 1, 2]
    assert seen == {
        "canary": False,
        "named": [],
        "pids": 2,
        "ids": [65534, 65534, 65534, seen["ids"][3]],
        "caps": ["0000000000000000"] * 5,
        "no_new_privs": "1",
        "seccomp": "2",
        "host": "localhost",
    }
    assert set(seen["ids"][3]) <= {65534}


@pytest.mark.req("R20")
def test_nothing_can_be_written_but_bounded_temporary_folders(tmp_path: Path) -> None:
    body = """
written = {}
for folder in ("/", "/app", "/usr", "/etc", "/opt", "/dev", "/home", "/root", "/proc",
               "/proc/sys/kernel",
               "/tmp", "/home/agent", "/dev/shm"):
    try:
        with open(folder + "/planted", "w") as file:
            file.write("x")
        written[folder] = True
    except OSError:
        written[folder] = False
mounts = [line.split() for line in open("/proc/mounts")]
written["mounts"] = sorted(m[1] for m in mounts if m[3].split(",")[0] == "rw"
                           and not m[1].startswith(("/dev/", "/proc")))
written["shm"] = any(m[1] == "/dev/shm" and "size=" in m[3] for m in mounts)
return written
"""
    written = found(tmp_path, body)
    assert written.pop("mounts") == ["/home/agent", "/tmp"]
    assert written.pop("shm") is True
    places = {name for name, was in written.items() if was}
    assert places == {"/tmp", "/home/agent", "/dev/shm"}


@pytest.mark.req("R20")
def test_a_full_disk_is_the_agents_own(tmp_path: Path) -> None:
    body = """
stopped = {}
for folder in ("/tmp", "/home/agent", "/dev/shm"):
    number = total = 0
    try:
        while True:
            with open(f"{folder}/{number}", "wb") as file:
                for _ in range(8):
                    total += file.write(b"x" * 2**20)
            number += 1
    except OSError as error:
        stopped[folder] = [total // 2**20, error.strerror]
return stopped
"""
    stopped = found(tmp_path, body, disk_mb=16)
    for folder, (written, why) in stopped.items():
        assert written <= 16, folder
        assert why == "No space left on device"


@pytest.mark.req("R20")
def test_more_files_than_it_may_have_end_it(tmp_path: Path) -> None:
    body = """
for number in range(200_000):
    open(f"/tmp/{number}", "w").close()
time.sleep(60)
"""
    failed = failure(tmp_path, body)
    assert (failed.code, "temporary folders" in failed.detail) == ("code_out_of_memory", True)


@pytest.mark.req("R20")
def test_a_fork_bomb_is_stopped_by_its_own_limit(tmp_path: Path) -> None:
    body = """
count = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        count += 1
except OSError as error:
    return [count, error.strerror]
"""
    count, why = found(tmp_path, body, processes=20)
    assert 5 <= count < 20
    assert why == "Resource temporarily unavailable"


@pytest.mark.req("R20")
def test_one_agents_fork_bomb_leaves_another_its_processes(tmp_path: Path) -> None:
    bomb = (
        f"{PREFIX}\ndef run(t, **k):\n    while True:\n        try:\n            os.fork()\n"
        "        except OSError:\n            time.sleep(0.5)\n"
    )
    other = (
        f"{PREFIX}\ndef run(t, **k):\n    pids = [os.fork() or os._exit(time.sleep(1) or 0)"
        " for _ in range(8)]\n    return {'final_response': str(len(pids))}\n"
    )

    async def go() -> None:
        async with desk(tmp_path, processes=16) as one:
            bombing = asyncio.create_task(one.ask(bomb, timeout_s=6))
            await asyncio.sleep(1)
            assert (await one.ask(other)).final_response == "8"
            with pytest.raises(AgentFailed) as caught:
                await bombing
            assert caught.value.outcome == "timeout"

    asyncio.run(go())


@pytest.mark.req("R20")
@pytest.mark.parametrize(
    "body",
    [
        "held = [bytearray(2**20) for _ in range(10_000)]",
        """
for _ in range(12):
    if os.fork() == 0:
        held = bytearray(80 * 2**20)
        time.sleep(60)
        os._exit(0)
time.sleep(60)
""",
    ],
)
def test_a_memory_bomb_is_stopped_alone_or_with_others(tmp_path: Path, body: str) -> None:
    failed = failure(tmp_path, body, memory_mb=256)
    assert (failed.outcome, failed.code) == ("error", "code_out_of_memory")


@pytest.mark.req("R20")
def test_memory_that_no_limit_would_see_cannot_be_had(tmp_path: Path) -> None:
    body = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
found = {"shmget": libc.shmget(0, 2**30, 0o1600)}
try:
    os.memfd_create("x")
except OSError as error:
    found["memfd"] = error.strerror
return found
"""
    assert found(tmp_path, body) == {"shmget": -1, "memfd": "Function not implemented"}


@pytest.mark.req("R20")
def test_cpu_time_is_bounded(tmp_path: Path) -> None:
    failed = failure(tmp_path, "while True: pass", cpu_s=1)
    assert (failed.outcome, failed.code) == ("error", "code_cpu_exceeded")


@pytest.mark.req("R20")
def test_endless_output_ends_the_turn(tmp_path: Path) -> None:
    failed = failure(tmp_path, "while True: os.write(1, b'x' * 65536)")
    assert (failed.outcome, failed.code) == ("error", "code_output_too_large")


@pytest.mark.req("R20")
def test_open_files_are_bounded(tmp_path: Path) -> None:
    body = """
held = []
try:
    while True:
        held.append(open("/dev/null"))
except OSError as error:
    return [len(held) < 40, error.strerror]
"""
    assert found(tmp_path, body, open_files=40) == [True, "Too many open files"]


@pytest.mark.req("R20")
def test_limits_cannot_be_raised_again(tmp_path: Path) -> None:
    body = """
import resource
refused = []
for name in ("RLIMIT_AS", "RLIMIT_NPROC", "RLIMIT_NOFILE", "RLIMIT_CPU", "RLIMIT_FSIZE"):
    try:
        resource.setrlimit(getattr(resource, name), (resource.RLIM_INFINITY,) * 2)
    except ValueError:
        refused.append(name)
return len(refused)
"""
    assert found(tmp_path, body) == 5


@pytest.mark.req("R20")
def test_what_an_agent_leaves_behind_dies_with_its_turn(tmp_path: Path) -> None:
    """`desk` proves that no process is left; here it double-forks out of every group as well."""
    body = """
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
subprocess.Popen(["sleep", "600"], start_new_session=True)
import threading
threading.Thread(target=time.sleep, args=(600,)).start()
return "left"
"""
    assert found(tmp_path, body) == "left"


@pytest.mark.req("R20")
def test_system_calls_for_breaking_out_are_refused(tmp_path: Path) -> None:
    body = """
import ctypes, platform
libc = ctypes.CDLL(None, use_errno=True)

def tried(call, *arguments):
    ctypes.set_errno(0)
    return getattr(libc, call)(*arguments) == -1 and os.strerror(ctypes.get_errno())

return {
    "ptrace": tried("ptrace", 0, 0, 0, 0),
    "unshare": tried("unshare", 0x10000000),
    "setns": tried("setns", 0, 0),
    "mount": tried("mount", b"none", b"/tmp", b"tmpfs", 0, None),
    "umount": tried("umount2", b"/app", 2),
    "chroot": tried("chroot", b"/tmp"),
    "program": subprocess.run(["unshare", "-U", "true"], capture_output=True).returncode != 0,
    "mknod": tried("mknod", b"/tmp/node", 0o60666, 0xfe00),
    "setuid": tried("setuid", 0),
    "bpf": tried("syscall", 321 if platform.machine() == "x86_64" else 280, 0, 0, 0),
    "uring": tried("syscall", 425, 1, 0),
}
"""
    tried = found(tmp_path, body)
    assert tried.pop("program") is True
    assert tried.pop("setuid") in ("Operation not permitted", "Invalid argument")
    assert tried.pop("uring") == "Function not implemented"
    assert set(tried.values()) == {"Operation not permitted"}


@pytest.mark.req("R20")
def test_two_sessions_at_once_see_nothing_of_each_other(tmp_path: Path) -> None:
    source = (
        PREFIX
        + """
def run(t, *, proxy_url, run_token):
    mine = t["user_instruction"]
    for folder in ("/tmp", "/home/agent", "/dev/shm"):
        open(f"{folder}/{mine}", "w").write(run_token)
    port = int(proxy_url.split(":")[2].split("/")[0])
    server = socket.create_server(("127.0.0.1", 40404))
    abstract = socket.socket(socket.AF_UNIX); abstract.bind("\\0meeting"); abstract.listen()
    time.sleep(1.5)
    text = ""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            text += open(f"/proc/{pid}/environ").read() + open(f"/proc/{pid}/cmdline").read()
        except OSError:
            pass
    seen = {folder: os.listdir(folder) for folder in ("/tmp", "/home/agent", "/dev/shm")}
    return {"final_response": json.dumps([seen, len(os.listdir("/proc/1/task")), sorted(
        int(pid) for pid in os.listdir("/proc") if pid.isdigit())])}
"""
    )

    async def go() -> list[Any]:
        async with desk(tmp_path) as one:
            agent = await one.register(source)
            answers = await asyncio.gather(
                *(
                    one.agents.turn(agent, make_request(name, run_token=f"{TOKEN}-{name}"))
                    for name in ("left", "right")
                )
            )
            return [json.loads(answer.final_response) for answer in answers]

    left, right = asyncio.run(go())
    for answer, name in ((left, "left"), (right, "right")):
        assert answer[0] == {folder: [name] for folder in ("/tmp", "/home/agent", "/dev/shm")}
        # The namespace's own first process, the driver, and nobody else.
        assert answer[1] == 1
        assert len(answer[2]) == 2


@pytest.mark.req("R20")
def test_a_turn_finds_nothing_of_the_one_before(tmp_path: Path) -> None:
    source = (
        PREFIX
        + """
import builtins
def run(t, **k):
    before = getattr(builtins, "left_here", None), os.listdir("/tmp"), os.listdir("/app")
    builtins.left_here = open("/tmp/left_here", "w")
    return {"final_response": json.dumps(before)}
"""
    )

    async def go() -> None:
        async with desk(tmp_path, pool=2) as one:
            for _ in range(4):
                answer = await one.ask(source)
                assert json.loads(answer.final_response) == [None, [], ["main.py"]]

    asyncio.run(go())


@pytest.mark.req("R20")
@pytest.mark.parametrize("body", ["return 1", "os._exit(0)", "os.kill(os.getpid(), 9)"])
def test_no_zombie_is_left_where_this_process_is_init(tmp_path: Path, body: str) -> None:
    """As in a container: whatever loses its parent becomes a child of ours, alive or dead."""
    libc = ctypes.CDLL(None)
    source = f"{PREFIX}\ndef run(t, **k):\n    {body}\n"

    async def go() -> None:
        async with desk(tmp_path, pool=1) as one:
            for _ in range(3):
                with pytest.raises(AgentFailed):
                    await one.ask(source)

    assert libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    try:
        asyncio.run(go())
        assert not psutil.Process().children(recursive=True)
    finally:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@pytest.mark.req("R20")
def test_sandboxes_die_with_their_dispatcher(tmp_path: Path) -> None:
    """Killed, it can clean nothing up: the kernel has to."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)

        async def never_ends() -> None:
            async with desk(tmp_path, pool=2) as one:
                source = f"{PREFIX}\ndef run(t, **k):\n    time.sleep(600)\n"
                asyncio.create_task(one.ask(source)).add_done_callback(lambda _: os._exit(1))
                await until(lambda: one.agents.turns_under_way == 1)
                await asyncio.sleep(1)
                found = [p.pid for p in psutil.Process().children(recursive=True)]
                os.write(write, json.dumps(found).encode())
                await asyncio.sleep(600)

        try:
            asyncio.run(never_ends())
        finally:
            os._exit(1)
    os.close(write)
    pids = json.loads(os.read(read, 65536) or b"[]")
    os.close(read)
    os.kill(child, 9)
    os.waitpid(child, 0)
    assert len(pids) >= 6
    _, left = psutil.wait_procs([psutil.Process(p) for p in pids if psutil.pid_exists(p)], 10)
    assert not left
