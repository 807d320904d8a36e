"""The script's side of a worker has its key stores, steps, barriers and optimizer states, and ends the process."""
