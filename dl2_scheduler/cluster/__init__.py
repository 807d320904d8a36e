"""This package holds what all of the scheduler shares: jobs, nodes, documents, what a policy sees and decides."""
