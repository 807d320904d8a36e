"""DL2 as the paper has it (section 4): its network, how it imitates, how it learns by itself, and the variants."""
