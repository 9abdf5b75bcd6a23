"""`windtunnel`, or `python -m services.cli`."""

from __future__ import annotations

import sys


def main() -> None:
    """The console script. Imports late, so that Ctrl-C while loading is no traceback either."""
    try:
        from services.cli.app import app

        app(prog_name="windtunnel")
    except KeyboardInterrupt:
        print("windtunnel: interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
