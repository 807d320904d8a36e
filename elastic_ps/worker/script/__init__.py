"""The script's side of a worker has its kvstores, steps, barriers and optimizer states, and ends the process."""
