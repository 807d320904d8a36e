"""The scheduler of a cluster: who gets how many workers and servers, from slot to slot (DL2, sections 3, 4 and 6)."""
