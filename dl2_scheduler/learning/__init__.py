"""DL2 learns here: supervised from a teacher first, then by reinforcement (DL2, section 4)."""
