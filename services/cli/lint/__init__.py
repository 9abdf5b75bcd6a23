"""Tools for those who write scenarios: schemas for editors, the reference, a linter, skeletons."""
