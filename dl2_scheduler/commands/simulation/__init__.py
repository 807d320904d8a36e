"""Commands of `dl2` that simulate, learn and draw."""
