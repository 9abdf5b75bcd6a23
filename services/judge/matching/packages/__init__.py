"""The profiles that give what `openevals` 0.2.2 and `agentevals` 0.0.9 give, mistakes included.

docs/trajectory-matching.md lists what these packages do that one would not expect. Tests compare
this package with both, result by result, over random trajectories.
"""
