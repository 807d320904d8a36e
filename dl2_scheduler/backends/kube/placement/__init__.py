"""Which pods go to which nodes: constraints, affinity, volumes, gangs, and the binder that acts on it."""
