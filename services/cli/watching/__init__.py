"""Watching runs: figures folded from the log, drawn on a terminal or told in plain lines."""
