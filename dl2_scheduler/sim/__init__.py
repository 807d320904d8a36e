"""The simulated cluster: traces, speeds, slots."""
