"""This package says where the tasks of a cluster of this machine run: its virtual nodes, and the cores of these."""
