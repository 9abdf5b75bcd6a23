"""Listens for agent.sh: passes a request's headers and body on to it, and its answer back."""

from __future__ import annotations

import os
import subprocess
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SCRIPT = Path(__file__).with_name("agent.sh")


class Handler(BaseHTTPRequestHandler):
    """Everything but bytes is the script's business."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {f"HTTP_{k.upper().replace('-', '_')}": v for k, v in self.headers.items()}
        done = subprocess.run(
            ["sh", str(SCRIPT)], input=body, env={**os.environ, **headers}, stdout=subprocess.PIPE,
            check=False,
        )  # fmt: skip
        status, _, answer = done.stdout.partition(b"\n")
        if done.returncode or not status.isdigit():
            status, answer = b"500", b'{"error": "the script failed"}'
        self.send_response(int(status))
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        """Silent: the request line is all it would say."""


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT") or 0)), Handler)
    print(f"http://127.0.0.1:{server.server_port}/dispatch", flush=True)
    server.serve_forever()
