"""How a run is counted: scores into statistics, trajectories into rows. Apache Beam throughout.

`aggregation` and `rows` are plain functions; `transforms` puts them into Beam; `score_run` runs
one run's jobs; `runner` is the process that starts them when a run is complete.
"""
