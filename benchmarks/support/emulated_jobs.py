"""Jobs whose accelerator and network are emulated, as benchmarks of real processes submit them.

`benchmarks.scripts.emulated` is what they run.
"""

from collections.abc import Sequence

import numpy as np

from benchmarks.scripts.emulated import KINDS, SAMPLES
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.cluster.speeds import Speeds
from examples.demo_cluster.jobs import SCRIPT, elastic_job

MOST = 4
"""Workers of a job, and servers."""

_EPOCHS = {"computing": 15, "updating": 15, "mixed": 15, "transferring": 10}
_SPREAD = 0.4  # part by which a job's epochs deviate from its type's
_GAP = 24.0  # seconds from one arrival to the next, on average


def arrivals(count: int, seed: int, pace: float = 1.0) -> list[Job]:
    """Return jobs by arrival: each kind as often, in an order that is drawn.

    Args:
        count: of the jobs.
        seed: of order, epochs and arrivals.
        pace: times as long from one arrival to the next.
    """
    random = np.random.default_rng(seed)
    kinds = [kind for _ in range(0, count, len(KINDS)) for kind in random.permutation(list(KINDS))]
    at, jobs = 0.0, []
    for number, kind in enumerate(kinds[:count]):
        epochs = float(round(_EPOCHS[kind] * random.uniform(1 - _SPREAD, 1 + _SPREAD)))
        task = {"slots": 1}
        jobs.append(Job(f"job-{number}", pace * at, kind, epochs, float(SAMPLES), task, task, MOST, MOST))
        at = round(at + _GAP * random.uniform(0.2, 1.8), 1)
    return jobs


def document(job: Job, pace: float = 1.0, least: int = 1) -> str:
    """Return the ElasticJob of a job.

    Args:
        job: to submit.
        pace: times as long as its kind's steps take.
        least: workers, and servers.
    """
    arguments: Sequence[str] = [job.model, "--epochs", f"{job.epochs:.0f}", "--pace", f"{pace:g}"]
    command = ["python", "-m", SCRIPT]
    return elastic_job(str(job.id), job.model, int(job.epochs), command, arguments, (MOST, MOST), (least, least))


def emulated_speeds(pace: float = 1.0) -> Speeds:
    """Return the speeds of the kinds, as they are emulated: for simulations alone.

    Args:
        pace: times as long as the kinds' steps take.
    """
    counts = range(MOST + 1)
    return Speeds(
        {
            name: np.array([[kind.samples_per_second(w, s) / pace if w and s else 0.0 for w in counts] for s in counts])
            for name, kind in KINDS.items()
        }
    )
