"""The smallest agent that speaks the runtime contract: it tells a library's opening hours.

`AGENT_TOKEN=secret python -m deploy.example.agent --port 8800`. Everything here is what any agent
needs: auth before ping, tools called through the proxy, the response unwrapped.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

BRANCH = re.compile(r"\b(central|harbour|hillside)\b", re.IGNORECASE)


async def dispatch(request: Request) -> JSONResponse:
    expected = f"Bearer {os.environ['AGENT_TOKEN']}"
    if not secrets.compare_digest(request.headers.get("authorization", ""), expected):
        return JSONResponse({"detail": "missing or invalid bearer token"}, status_code=401)
    body = await request.json()
    if body == {"ping": True}:
        return JSONResponse({"ok": True})
    question = body["input"]["user_instruction"]
    branch = BRANCH.search(question)
    if branch is None:
        return JSONResponse({"final_response": "Which branch do you mean, please?"})
    async with httpx.AsyncClient(timeout=120) as client:
        answer = await client.post(
            f"{body['odyssey_proxy_url']}/tools/get_opening_hours",
            json={"branch": branch[1].lower()},
            headers={"Authorization": f"Bearer {request.headers['x-pipelines-run-token']}"},
        )
    answer.raise_for_status()
    hours = answer.json()["response"]  # the envelope around it is for the trace
    text = f"The {branch[1]} branch is open from {hours['opens']} to {hours['closes']}."
    return JSONResponse({"final_response": text})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8800)
    app = Starlette(routes=[Route("/dispatch", dispatch, methods=["POST"])])
    uvicorn.run(app, host="127.0.0.1", port=parser.parse_args().port, log_level="warning")


if __name__ == "__main__":
    main()
