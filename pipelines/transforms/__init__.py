"""Beam transforms: decoding, rows of sessions, aggregates of a run."""
