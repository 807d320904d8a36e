"""A model checker of the replicated protocol: every order of messages and faults, at 2 workers, 3 servers."""
