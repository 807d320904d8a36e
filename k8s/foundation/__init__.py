"""This package has what the operator and the scheduler share: requests to the API server, a lease, events, probes."""
