"""This module gives the measured placements that the product ships: real jobs on two nodes of one machine.

`python -m benchmarks.measure_interference` has written them; the table is under CC BY 4.0.
"""

from functools import cache
from importlib import resources
from pathlib import Path

from dl2_scheduler.cluster.hardware.measured_table import MeasuredTable, read_table

SHIPPED_TABLE = resources.files("dl2_scheduler.sim.placed") / "interference.jsonl"


@cache
def shipped_table() -> MeasuredTable:
    """Return the table."""
    return read_table(Path(str(SHIPPED_TABLE)))
