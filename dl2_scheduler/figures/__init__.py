"""Figures and tables of DL2's section 6, each drawn from runs of our own: one command, a picture and its numbers."""
