"""The simulated cluster is here, with its traces, its speeds and its slots."""
