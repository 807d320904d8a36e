"""Real jobs under seeded faults: `python -m tests.chaos` (docs/faults.md)."""
