"""The process around the core: gRPC service, event loop, journal, ledger files, checkpoint storage, metrics."""
