"""What each participant must not do, tried; see docs/fidelity.md."""
