"""This package trains without servers: each worker holds model and optimizer, and gradients are all-reduced.

docs/reference/all-reduce.md has the protocol: who agrees on what, when members come, go and die.
"""
