"""Policies that are rules: DRF, FIFO, SRTF, Tetris, Optimus, the planner."""
