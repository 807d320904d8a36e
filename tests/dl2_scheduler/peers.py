"""The published code's job sequences and figures, where this machine has them."""

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dl2_scheduler.cluster.jobs import Job, Node
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.sim.speeds import interpolated, read_points
from tests.paths import ROOT

DATA = Path(os.environ.get("DL2_SHARED_DATA", ROOT.parent / "shared" / "data"))
"""Beside the checkout, unless the environment names another folder."""

needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason=f"no folder {DATA}: set DL2_SHARED_DATA to the one with peer_*_nodes.json"
)

_FIELDS = Job.__dataclass_fields__


@cache
def table() -> Speeds:
    """Speeds of the testbed, with one more of each role than jobs may have."""
    return interpolated(read_points(DATA / "dl2_testbed_speed.txt"), 17, 17)


@cache
def document(count: int) -> dict[str, Any]:
    """Of a cluster with so many nodes."""
    read: dict[str, Any] = json.loads((DATA / f"peer_{count}_nodes.json").read_text())
    return read


def machines(count: int) -> list[Node]:
    return [Node(f"n{number}", document(count)["node"]) for number in range(count)]


def sequence(count: int, number: int) -> tuple[list[Job], dict[str, float]]:
    """Jobs, and what the published code reaches with them: mean completion time in slots, by policy."""
    each = document(count)["sequences"][number]
    jobs = [Job(**{name: value for name, value in fields.items() if name in _FIELDS}) for fields in each["jobs"]]
    return jobs, each["mean_jct_slots"]
