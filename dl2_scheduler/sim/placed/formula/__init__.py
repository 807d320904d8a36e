"""This package is the world of the graph scheduler's paper: its clusters, its interference, its law of speed."""
