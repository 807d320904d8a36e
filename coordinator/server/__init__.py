"""This package runs the core in a process: gRPC service, event loop, journal, ledger, checkpoints, metrics."""
