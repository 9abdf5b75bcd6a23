"""The judge: scores every ended session over its whole trajectory.

`core` is the way in. `trajectory` and `outcomes` say what happened, `evaluators` score it one
dimension a file, `validity` says whether the session counts at all, and `llm` asks a model where
only a reader can tell.
"""
