"""This package decides which pods go to which nodes, by constraints, affinity, volumes and gangs, and binds them."""
