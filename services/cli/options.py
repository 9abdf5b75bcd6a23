"""Options that many commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from services.cli.stack.directory import DEFAULT_DIRECTORY

Directory = Annotated[
    Path,
    typer.Option("--dir", help="The stack's directory; says where broker and store are."),
]
Bootstrap = Annotated[
    str, typer.Option("--bootstrap", help="Kafka bootstrap servers, instead of the stack's.")
]
StoreUrl = Annotated[
    str,
    typer.Option("--store", help="clickhouse://user:password@host:port/db, not the stack's."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable output on stdout.")]

DIRECTORY = DEFAULT_DIRECTORY
