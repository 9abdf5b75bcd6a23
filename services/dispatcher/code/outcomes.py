"""What became of a turn in a sandbox, as the outcomes that trajectories know. Pure."""

from __future__ import annotations

import signal

from services.dispatcher.code.limits import MAX_OUTPUT_BYTES, CodeLimits
from services.dispatcher.code.sandbox import Report
from services.runtime.agents.client import AgentFailed
from services.runtime.agents.redaction import Redactor

_CODES = {
    "import": ("code_import_failed", "importing the entrypoint"),
    "no_entry": ("code_entrypoint_missing", "looking for the entrypoint"),
    "raised": ("code_raised", ""),
    "out_of_memory": ("code_out_of_memory", ""),
    "not_json": ("response_not_json", "writing the answer as JSON"),
    "too_large": ("response_too_large", "the answer is too large"),
}
_MAX_ERROR, _MAX_TRACE, _MAX_OUTPUT = 300, 400, 250
_SIGNALLED = 128


def reported(report: Report, output: bytes | bytearray, redactor: Redactor) -> AgentFailed:
    """The failure that the driver tells of."""
    if report.outcome not in _CODES:
        return exited(None, output, redactor)
    code, doing = _CODES[report.outcome]
    error = redactor.text(report.error)
    # The exception's own last line, without what the agent has put before it.
    said = f"{doing}: {error}" if doing else error
    return AgentFailed("error", code, _detail(said, redactor.text(report.trace), output, redactor))


def exited(status: int | None, output: bytes | bytearray, redactor: Redactor) -> AgentFailed:
    """The failure of a process that ended, with this status, instead of answering; None where it
    broke off its answer.
    """
    if status == _SIGNALLED + signal.SIGXCPU:
        return AgentFailed(
            "error", "code_cpu_exceeded", _detail("out of CPU time", "", output, redactor)
        )
    if status is None:
        said = "broke off its answer"
    elif status > _SIGNALLED and status - _SIGNALLED in set(signal.Signals):
        said = f"killed by {signal.Signals(status - _SIGNALLED).name} before it had answered"
    else:
        said = f"exited with status {status} before it had answered"
    return AgentFailed("error", "code_exited", _detail(said, "", output, redactor))


def exceeded_limit(what: str, output: bytes | bytearray, redactor: Redactor) -> AgentFailed:
    """The failure of a sandbox that took more memory than it may."""
    return AgentFailed("error", "code_out_of_memory", _detail(what, "", output, redactor))


def printed_too_much() -> AgentFailed:
    """The failure of an agent that never stops printing."""
    limit = MAX_OUTPUT_BYTES >> 20
    return AgentFailed("error", "code_output_too_large", f"printed more than {limit} MiB")


def timed_out(timeout_s: float, output: bytes | bytearray, redactor: Redactor) -> AgentFailed:
    """The failure of an agent that has not answered in time."""
    said = f"no answer within {timeout_s:g} s"
    return AgentFailed("timeout", "timeout", _detail(said, "", output, redactor))


def all_busy(limits: CodeLimits, waited_s: float) -> LookupError:
    """Not the agent's fault: there was no sandbox for its turn."""
    return LookupError(
        f"all {limits.concurrency} sandboxes were in use for {waited_s:g} s; raise "
        f"WINDTUNNEL_CODE_CONCURRENCY or add dispatchers"
    )


def _detail(said: str, trace: str, output: bytes | bytearray, redactor: Redactor) -> str:
    """What happened, where, and the end of what was printed; without secrets, and bounded."""
    parts = [said[:_MAX_ERROR]]
    if trace:
        parts.append(trace[-_MAX_TRACE:])
    # Redacted before it is cut, so that no part of a token is left at the edge.
    if printed := redactor.text(output.decode(errors="replace")).strip()[-_MAX_OUTPUT:]:
        parts.append(f"printed: {printed}")
    return "\n".join(parts)
