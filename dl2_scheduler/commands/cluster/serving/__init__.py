"""This package is `dl2 serve`: its options, and what they set up around the loop of a live cluster."""
