"""This package decides how a job is saved, how it goes back to a checkpoint, and how it ends."""
