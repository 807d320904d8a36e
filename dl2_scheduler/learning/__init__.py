"""How DL2 learns: supervised from a teacher first, then by reinforcement (DL2, section 4)."""
