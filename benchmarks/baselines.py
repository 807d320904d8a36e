"""Every baseline and both bounds on the published job sequences, beside what the published code reaches: a few minutes.

    python -m benchmarks.baselines [--data FOLDER] [--sequences N]

Numbers are mean completion times in slots, over the sequences. The folder has `peer_24_nodes.json` and the like, and
the testbed's speeds; docs/reference/baselines.md says what the rules are and why ours differ.
"""

import json
from collections.abc import Mapping
from functools import partial
from statistics import mean
from typing import Any

from benchmarks.support.published_data import data_parser, parsed
from benchmarks.support.report import BenchmarkGoal, as_program, at_least, finish, under
from dl2_scheduler.cluster.jobs import Job, Node
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.policies.registry import POLICY_NAMES, make_policy, rule_of
from dl2_scheduler.sim.bound import hard_bound, lp_bound
from dl2_scheduler.sim.evaluate import Contender, Setting, compare
from dl2_scheduler.sim.lanes import NO_COST
from dl2_scheduler.sim.speeds import interpolated, read_points

SIZES = (24, 48, 96)
ALL = 10  # sequences of a size
LP, HARD = "LP bound", "hard bound"
NAMES = (*sorted(POLICY_NAMES, key=lambda name: not name.startswith("published-")), LP, HARD)
_MOST = 17  # the published Optimus looks one step beyond a job's 16
_OF_FILE = {name: name.removeprefix("published-") for name in NAMES if name.startswith("published-")}
_OF_FILE |= {LP: "lp_bound", HARD: "hard_bound"}
_OF_PAGE = {  # measured by others with the published code mended; means over all sequences
    "planner-true": {24: 28.08, 48: 23.40, 96: 22.16},
}
_LIMITS = {"published-tetris": 5.0, LP: 0.5, HARD: 0.01}  # percent; 1 for the others

Times = list[float]
"""Mean completion time in slots, by sequence."""


def main() -> int:
    parser = data_parser(__doc__)
    parser.add_argument("--sequences", type=int, default=ALL, help="how many of each size")
    arguments = parsed(parser)
    speeds = interpolated(read_points(arguments.data / "dl2_testbed_speed.txt"), _MOST, _MOST)
    rows: dict[str, dict[str, Any]] = {name: {"policy": name} for name in NAMES}
    for size in SIZES:
        document = json.loads((arguments.data / f"peer_{size}_nodes.json").read_text())
        document["sequences"] = document["sequences"][: arguments.sequences]
        for name, ours in _ours(document, size, speeds).items():
            rows[name][f"{size} nodes"] = mean(ours)
            rows[name][f"{size} published"], rows[name][f"{size} off %"] = _beside(name, ours, size, document)
    return finish("baselines", list(rows.values()), _goals(rows), ["numpy", "scipy", "numba"])


def _ours(document: Mapping[str, Any], size: int, speeds: Speeds) -> dict[str, Times]:
    """Return what each policy and bound of ours takes."""
    nodes = [Node(f"n{number}", document["node"]) for number in range(size)]
    setting = Setting(nodes, speeds, document["slot_seconds"], NO_COST)  # as the published numbers
    sequences = {str(each["sequence"]): published_jobs(each) for each in document["sequences"]}
    contenders = [Contender(name, partial(make_policy, name, speeds), rule_of(name)) for name in POLICY_NAMES]
    results = compare(contenders, sequences, setting)
    arguments = nodes, speeds, setting.slot_seconds
    return {
        **{result.name: [run.jct_slots.mean for run in result.runs.values()] for result in results},
        LP: [lp_bound(jobs, *arguments) for jobs in sequences.values()],
        HARD: [hard_bound(jobs, *arguments) for jobs in sequences.values()],
    }


def _beside(name: str, ours: Times, size: int, document: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return what was published and, in percent, by how much the sequence that differs most differs."""
    if name in _OF_PAGE and len(ours) == ALL:
        theirs = _OF_PAGE[name][size]
        return theirs, 100 * (mean(ours) / theirs - 1)
    published = [each["mean_jct_slots"].get(_OF_FILE.get(name)) for each in document["sequences"]]
    if None in published:
        return None, None
    return mean(published), max((100 * (one / other - 1) for one, other in zip(ours, published, strict=True)), key=abs)


def _goals(rows: Mapping[str, Mapping[str, Any]]) -> list[BenchmarkGoal]:
    goals = []
    for name, row in rows.items():
        off = [row[f"{size} off %"] for size in SIZES if row[f"{size} off %"] is not None]
        if off:
            goals.append(under(f"{name}, largest difference", _LIMITS.get(name, 1.0), max(map(abs, off)), "%"))
            if name == LP:
                goals.append(at_least("LP bound, smallest difference", 0.0, min(off), "%"))
    return goals


def published_jobs(sequence: Mapping[str, Any]) -> list[Job]:
    """Return the jobs of one sequence of a published file."""
    names = Job.__dataclass_fields__
    return [Job(**{name: value for name, value in job.items() if name in names}) for job in sequence["jobs"]]


if __name__ == "__main__":
    as_program(main)
