"""`windtunnel tau2`: the benchmark's tasks as suites, and its recorded results scored again."""
