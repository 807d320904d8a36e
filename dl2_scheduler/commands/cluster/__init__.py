"""This package holds the commands of `dl2` about a cluster that really runs."""
