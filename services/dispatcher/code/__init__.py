"""Agents whose source was uploaded: each turn runs in a sandbox of its own, and only there.

`driver.py` is the one file that runs inside; everything else runs here. Where a sandbox cannot be
set up, nothing runs.
"""
