"""Commands of `dl2` about a cluster that really runs."""
