"""A program beside the scheduler learns online from a live cluster's history."""
