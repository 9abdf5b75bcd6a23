"""Assertions (`goals.assertions`): what they can say, and whether they hold in a trajectory.

`spec` is what people write, `facts` what a trajectory has to show, `checks`, `utterances`,
`sequences` and `responses` decide. docs/assertions.md tells the same to whoever writes scenarios.
"""
