"""Policies where they were not tuned: other arrivals, job mixes, nodes and sizes than the published sequences have.

    python -m benchmarks.generality [--policies drf,optimus,dl2:RUN] [--only poisson] [--sequences 10] [--measured-cost]

Names are those of `dl2 evaluate`; the first policy is the baseline of the differences. Every sequence is generated,
from seeds that no lesson has. Numbers are mean completion times in slots over the sequences, ± half the 95% interval;
with scaling free, as in the paper, unless `--measured-cost` is given. The linear program is solved for up to 60 jobs.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.support.published_data import DATA
from benchmarks.support.report import as_program, at_least, finish
from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.policies.registry import make_policy, rule_of
from dl2_scheduler.sim.arrivals import Pattern, generate
from dl2_scheduler.sim.bound import hard_bound, lp_bound
from dl2_scheduler.sim.catalogue import CATALOGUE
from dl2_scheduler.sim.evaluate import Contender, Sequences, Setting, compare
from dl2_scheduler.sim.lanes import MEASURED, NO_COST
from dl2_scheduler.sim.metrics import Estimate, estimate
from dl2_scheduler.sim.speeds import interpolated, read_points
from dl2_scheduler.sim.trace import parse_cluster

FIRST_SEED = 3 << 30  # above all that `Lessons` draws, to learn from and to judge by
MOST_JOBS_OF_LP = 60
MOST_TASKS = 17  # the published Optimus looks one step beyond a job's 16
JCT = "jct_slots.mean"
POLICIES = "drf,optimus,planner,planner-true"

LARGE = ("cnn-text-classification", "resnet-50", "seq2seq", "vgg-16")  # 13 to 97 slots alone at top speed
SMALL = ("dssm", "inception-bn", "resnext-110", "wlm")  # 1 to 5


def _as_generated(job: Job) -> Job:
    return job


def _two_gpus(job: Job) -> Job:
    """Let a worker take two GPUs where it takes four."""
    return replace(job, worker={"cpu": 2, "gpu": 2}) if job.worker.get("gpu") else job


@dataclass(frozen=True)
class Scene:
    """A scene is one kind of sequences and says where they run.

    Attributes:
        name: for people.
        cluster: nodes, as `dl2 evaluate --cluster` has them.
        pattern: of arrivals.
        jobs: of a sequence.
        models: that jobs train, each as often.
        epochs_spread: see `generate`.
        change: of each job that was generated.
    """

    name: str
    cluster: str = "48x8cpu,8gpu"
    pattern: Pattern = Pattern.GOOGLE
    jobs: int = 60
    models: tuple[str, ...] = tuple(CATALOGUE)
    epochs_spread: float = 0.0
    change: Callable[[Job], Job] = _as_generated

    def sequences(self, count: int) -> dict[str, list[Job]]:
        """Return the sequences by their seeds."""
        return {str(seed): self._sequence(seed) for seed in range(FIRST_SEED, FIRST_SEED + count)}

    def _sequence(self, seed: int) -> list[Job]:
        made = generate(
            self.pattern, self.jobs, seed, dict.fromkeys(self.models, 1.0), epochs_spread=self.epochs_spread
        )
        return [self.change(job) for job in made]


SCENES = (
    *(Scene(f"{pattern}, {size} nodes", f"{size}x8cpu,8gpu", pattern) for pattern in Pattern for size in (24, 48, 96)),
    Scene("large jobs only", models=LARGE),
    Scene("small jobs only", models=SMALL),
    Scene("two models: resnet-50, dssm", models=("resnet-50", "dssm")),
    Scene("epochs ± 90%", epochs_spread=0.9),
    Scene("nodes of two sizes", "16x16cpu,16gpu+32x4cpu,4gpu"),
    Scene("two gpus a worker", change=_two_gpus),
    Scene("500 nodes, 200 jobs", "500x8cpu,8gpu", jobs=200),
)


def main() -> int:
    """Measure, print, write build/bench/generality.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", default=POLICIES, help=f"joined by commas (default {POLICIES})")
    parser.add_argument("--only", default="", help="scenes with this in their names")
    parser.add_argument("--sequences", type=int, default=10, help="of each scene (default 10)")
    parser.add_argument("--speeds", type=Path, default=DATA / "dl2_testbed_speed.txt", help="table of speeds")
    parser.add_argument("--measured-cost", action="store_true", help="scaling costs what our runtime needs for it")
    arguments = parser.parse_args()
    scenes = [scene for scene in SCENES if arguments.only in scene.name]
    if not scenes:
        parser.error(f"no scene has {arguments.only!r} in its name: {'; '.join(scene.name for scene in SCENES)}")
    try:
        speeds = interpolated(read_points(arguments.speeds), MOST_TASKS, MOST_TASKS)
        contenders = [_contender(name, speeds) for name in arguments.policies.split(",")]
    except BadInput as error:
        parser.error(str(error))
    rows: list[dict[str, Any]] = []
    for scene in scenes:
        cost = MEASURED if arguments.measured_cost else NO_COST
        setting = Setting(parse_cluster(scene.cluster), speeds, cost=cost)
        print(scene.name, file=sys.stderr, flush=True)
        rows += _rows(scene, setting, contenders, scene.sequences(arguments.sequences))
    nearest = min(row["over the bound %"] for row in rows if row["over the bound %"] is not None)
    goal = at_least("the nearest to a bound is above it by", 0.0, nearest, "%")
    return finish("generality", rows, [goal], ["numpy", "scipy", "numba"])


def _contender(name: str, speeds: Speeds) -> Contender:
    make_policy(name, speeds)  # an unknown name is told before anything runs
    return Contender(name, partial(make_policy, name, speeds), rule_of(name))


def _rows(
    scene: Scene, setting: Setting, contenders: Sequence[Contender], sequences: Sequences
) -> Iterator[dict[str, Any]]:
    """Yield a row of each policy and bound in one scene."""
    least = _bounds(scene, setting, sequences)
    highest = max(bound.mean for bound in least.values())
    for result in compare(contenders, sequences, setting):
        mean, difference = result.numbers[JCT], result.differences[JCT]
        yield {
            "scene": scene.name,
            "policy": result.name,
            "slots": mean.mean,
            "±": mean.margin,
            f"vs {contenders[0].name}": difference.mean,
            "± of it": difference.margin,
            "over the bound %": 100 * (mean.mean / highest - 1),
        }
    for name, bound in least.items():
        empty = dict.fromkeys((f"vs {contenders[0].name}", "± of it", "over the bound %"))
        yield {"scene": scene.name, "policy": name, "slots": bound.mean, "±": bound.margin, **empty}


def _bounds(scene: Scene, setting: Setting, sequences: Sequences) -> dict[str, Estimate]:
    kinds = {"hard bound": hard_bound}
    if scene.jobs <= MOST_JOBS_OF_LP:
        kinds["LP bound"] = lp_bound
    where = setting.nodes, setting.speeds, setting.slot_seconds
    return {name: estimate([kind(jobs, *where) for jobs in sequences.values()]) for name, kind in kinds.items()}


if __name__ == "__main__":
    as_program(main)
