"""This package says whether a learnt policy may go on deciding: a baseline is compared with it, slot by slot.

Both play the same simulated futures.
"""
