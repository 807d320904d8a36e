"""The simulated world runs a whole job in one thread, by a seed and under virtual time: production as it is."""
