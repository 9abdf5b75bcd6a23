"""Worlds that other benchmarks' packages bring along."""
