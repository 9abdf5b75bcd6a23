"""The deployment gate: compares a run's aggregates with the accepted baseline and says go or stop.

Knows aggregates, baselines and one policy, all from topics; it never asks the store.
"""
