"""This package holds the commands of `dl2` that learn policies."""
