"""Real jobs under seeded faults: `python -m tests.chaos` (docs/reference/faults.md)."""
