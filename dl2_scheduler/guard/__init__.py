"""Whether a learnt policy may go on deciding: it is compared with a baseline, slot by slot, in simulated futures."""
