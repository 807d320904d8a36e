"""This package holds the commands of `dl2` that simulate, learn and draw."""
