"""Online learning from a live cluster's history, in a program beside the scheduler."""
