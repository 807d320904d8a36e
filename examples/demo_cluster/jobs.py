"""The demo's jobs: three kinds with speeds of their own; their accelerators and networks are emulated."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

SCRIPT = "benchmarks.scripts.emulated"
"""Waits in each step for as long as its device and its network would take, so that tasks do not share two cores."""

_MOST_TASKS = 4, 4  # workers of a job, and servers
_FIXED = {
    "computing": {(1, 1): 1, (4, 1): 3, (1, 4): 1, (2, 2): 2},
    "updating": {(1, 1): 1, (4, 1): 1, (1, 4): 3, (2, 2): 2},
    "mixed": {(1, 1): 2, (4, 1): 2, (1, 4): 2, (2, 2): 3},
}
"""By kinds, workers and servers that jobs asked for, and their epochs: 15 to 20 seconds.

Workers make the first kind faster, servers the second, both the third.
"""


@dataclass(frozen=True)
class SubmittedJob:
    """This is one job that is submitted to a cluster.

    Attributes:
        name: of it.
        kind: its type.
        arrival: seconds after the first.
        epochs: that it trains.
        document: its ElasticJob, as YAML.
    """

    name: str
    kind: str
    arrival: float
    epochs: int
    document: str


def elastic_job(
    name: str,
    kind: str,
    epochs: int,
    command: Sequence[str],
    arguments: Sequence[str],
    most: tuple[int, int],
    least: tuple[int, int] = (1, 1),
) -> str:
    """Return an ElasticJob, as YAML.

    Args:
        name: of the job.
        kind: its type.
        epochs: that it trains.
        command: of each worker.
        arguments: behind the command.
        most: workers and servers.
        least: workers and servers.
    """
    container = {"command": list(command), "args": list(arguments)}
    workers = {"min": least[0], "max": most[0], "template": {"spec": {"containers": [container]}}}
    spec = {"modelType": kind, "epochs": epochs, "workers": workers, "servers": {"min": least[1], "max": most[1]}}
    head = {"apiVersion": "dl2.scheduler/v1alpha1", "kind": "ElasticJob", "metadata": {"name": name}}
    return json.dumps({**head, "spec": spec})  # which is YAML, too


def _job(
    name: str, arrival: float, epochs: int, least: tuple[int, int] = (1, 1), most: tuple[int, int] = _MOST_TASKS
) -> SubmittedJob:
    """Return a job of the kind that its name begins with.

    Args:
        name: of it.
        arrival: seconds after the first.
        epochs: that it trains.
        least: workers and servers.
        most: workers and servers.
    """
    kind = name.split("-")[0]
    arguments = ["-m", SCRIPT, kind, "--epochs", str(epochs)]
    return SubmittedJob(
        name, kind, arrival, epochs, elastic_job(name, kind, epochs, ["python"], arguments, most, least)
    )


def _fixed() -> Iterator[SubmittedJob]:
    for kind, asked in _FIXED.items():
        for counts, epochs in asked.items():
            yield _job(f"{kind}-{counts[0]}w{counts[1]}s", 0, epochs, counts, counts)


YESTERDAY = tuple(_fixed())
"""Jobs whose owners asked for fixed numbers of workers and servers, as jobs do that cannot be scaled."""

TODAY = (
    _job("computing-1", 0, 6),
    _job("updating-1", 3, 6),
    _job("computing-2", 6, 6),
    _job("updating-2", 9, 6),
    _job("mixed-1", 12, 6),
    _job("computing-3", 15, 6),
    _job("updating-3", 18, 6),
    _job("mixed-2", 21, 6),
)
"""Jobs that may be scaled: the policy decides."""
