"""The control API: agents registered, changed, tested and removed over HTTP.

Whatever it does ends as a record on the `agents` topic, as if the CLI or any other producer had
written it; it holds nothing of its own.
"""
