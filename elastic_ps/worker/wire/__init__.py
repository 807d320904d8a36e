"""The servers' side of a worker: connections, exchanges, parameters that arrive, membership of the job."""
