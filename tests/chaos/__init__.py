"""Real jobs under seeded faults: `python -m tests.chaos` (docs/faults.md)."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "e2e"))  # `jobs` and `proofs`, by which all tests run real jobs
