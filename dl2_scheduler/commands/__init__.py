"""This package holds the commands of `dl2`."""
