"""Where things of the project lie."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
