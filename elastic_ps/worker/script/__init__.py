"""The script's side of a worker: stores, steps, barriers, optimizer states, the end of the process."""
