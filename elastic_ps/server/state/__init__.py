"""The parts of a server share its state: blocks, standing, open updates, ledger, under one lock."""
