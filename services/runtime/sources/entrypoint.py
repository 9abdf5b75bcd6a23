"""Whether a source has the function that is to be called, found out without running any of it."""

from __future__ import annotations

import ast
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence

from services.runtime.sources.files import SourceRefused

_PARSING = threading.Lock()
"""Neither warning filters nor, in Python 3.11, the parser's count of its own depth is safe where
several threads are at it (CPython issue 106905)."""


def check_entrypoint(files: Mapping[str, bytes], entrypoint: str) -> None:
    """Raises SourceRefused where `module:function` cannot be what the source offers.

    A module that fills itself while it is imported (`from x import *`, `__getattr__`) is believed.
    """
    module, _, function = entrypoint.partition(":")
    stem = module.replace(".", "/")
    name = next((file for file in (f"{stem}/__init__.py", f"{stem}.py") if file in files), None)
    if name is None:
        modules = sorted(file for file in files if file.endswith(".py"))[:5]
        have = f"; it has {', '.join(modules)}" if modules else ""
        raise SourceRefused(f"entrypoint {entrypoint}: the source has no {stem}.py{have}")
    try:
        with _PARSING, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(files[name], name)
    except SyntaxError as error:
        raise SourceRefused(f"{name}, line {error.lineno}: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise SourceRefused(f"{name}: cannot be parsed: {error}") from None
    found = set(_names(tree.body))
    if function not in found and not found & {"*", "__getattr__"}:
        raise SourceRefused(f"entrypoint {entrypoint}: {name} defines no {function}")


def _names(body: Sequence[ast.stmt]) -> Iterator[str]:
    """Names bound at a module's top level, in branches and blocks too."""
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield statement.name
            continue
        if isinstance(statement, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in statement.names)
        for node in ast.iter_child_nodes(statement):
            if isinstance(node, ast.expr):
                yield from (
                    name.id
                    for name in ast.walk(node)
                    if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
                )
        for block in ("body", "orelse", "finalbody"):
            yield from _names(getattr(statement, block, ()))
        for handler in getattr(statement, "handlers", ()):
            yield from _names(handler.body)
