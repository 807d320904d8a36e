"""This package is the graph scheduler's policy, as numbers: agents that read their partitions as graphs."""
