"""Whole stacks, used as people use them."""
