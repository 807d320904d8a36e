"""How a job is saved, how it goes back to a checkpoint, and how it ends. Pure."""
