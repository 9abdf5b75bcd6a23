"""The page itself: one HTML document with its styles, scripts and data inside.

Nothing is loaded from anywhere. Data is JSON, compressed and in base64, so that no text of a
trajectory is ever part of the document; the scripts put it on the page as text alone. A content
security policy that names the scripts by their hashes stands behind that.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Iterable, Iterator
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from services.cli.output import plain

_FOLDER = Path(__file__).with_name("page")
_SCRIPTS = (
    "dom.js", "data.js", "figures.js", "overview.js", "sessions.js", "events.js",
    "trajectory.js", "diff.js", "main.js",
)  # fmt: skip
_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the content</a>
<header id="top"></header>
<main id="main" tabindex="-1"><p class="loading">Reading …</p></main>
<noscript>This page needs JavaScript; everything it needs is inside the file.</noscript>
"""
_TAIL = "<script>{script}</script>\n</body>\n</html>\n"


def document(
    title: str, index: Any, details: Iterable[tuple[str, Any]], *, live: bool = False
) -> Iterator[str]:
    """The page, piece by piece.

    Args:
        title: what the browser's tab says.
        index: what is shown first, in JSON's types.
        details: what is unpacked when it is asked for, each under its name; names are hexadecimal
            or otherwise harmless in an attribute.
        live: the page asks the server it came from for details that it does not hold.
    """
    style, script = assets()
    asked = "'self'" if live else "'none'"
    policy = (
        f"default-src 'none'; style-src 'sha256-{_hash(style)}'; "
        f"script-src 'sha256-{_hash(script)}'; img-src data:; base-uri 'none'; "
        f"form-action 'none'; connect-src {asked}"
    )
    yield _HEAD.format(policy=policy, title=escape(title), style=style)
    yield _packed("index", index)
    for name, value in details:
        yield _packed(f"detail-{name}", value)
    yield _TAIL.format(script=script)


@cache
def assets() -> tuple[str, str]:
    """The page's style sheet and script."""
    style = (_FOLDER / "report.css").read_text()
    parts = [(_FOLDER / name).read_text() for name in _SCRIPTS]
    return style, '"use strict";\n' + "\n".join(parts)


def _packed(name: str, value: Any) -> str:
    data = json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    packed = gzip.compress(data.encode("utf-8", "backslashreplace"), 6, mtime=0)
    text = base64.b64encode(packed).decode("ascii")
    return f'<script type="application/gzip" id="{escape(name)}">{text}</script>\n'


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
