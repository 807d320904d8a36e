"""docs/reference/metrics.md has each metric of the three programs, with its type and labels, and no other."""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pytest
from prometheus_client import Metric
from prometheus_client.registry import Collector

from coordinator.core import events as ev
from coordinator.server.metrics import JobCollector
from dl2_scheduler.cluster.desk import ClusterLoad, JobStatus, LiveJobPhase, NodeLoad, TaskLoad
from dl2_scheduler.live.exploration.budget import ExplorationBudget
from dl2_scheduler.live.metrics import ClusterMetrics
from k8s.elastic_operator.job.model import Desired
from k8s.elastic_operator.job.status import ElasticJobStatus
from k8s.elastic_operator.metrics import OperatorMetrics
from tests.coordinator.played_job import World
from tests.paths import ROOT

PAGE = ROOT / "docs" / "reference" / "metrics.md"
ROW = re.compile(r"\| `(\w+)` \| (\w+) \| ([\w, ]*?) *\| (.+) \|")
ADDED_BY_PROMETHEUS = {"le"}


class Described(NamedTuple):
    type: str
    labels: frozenset[str]


class Desk:
    """A desk with one job that runs on one node."""

    def jobs(self) -> list[JobStatus]:
        at_most = (4, 4)
        return [
            JobStatus(
                "a", "digits", LiveJobPhase.RUNNING, "", 2, 1, 1, 1, *at_most, False, 1.0, 9.0, 3.0, 0.0, None, None
            )
        ]

    def load(self) -> ClusterLoad:
        return ClusterLoad([NodeLoad("n", {"slots": 8.0}, {"slots": 3.0})], [TaskLoad("a", "w0", "n", 1, 1, 1)], "")


class Learning:
    """A policy that learns."""

    updates, accepted, refused, core_seconds = 4, 1, 1, 9.0


class Exploration:
    """A job has explored."""

    budget = ExplorationBudget(lived=600.0, spent=12.0, jobs=1)


class Sharing:
    """A cluster that shares what it learns."""

    clusters, speeds, ignored, tried, accepted = 2, 41, 1, 3, 1


def coordinator() -> Collector:
    """Of a job with replicas that has been scaled, so that nothing is left out."""
    world = World(2, 3, replicas=1)
    world.ask(ev.ScaleAsked, 3, 3)
    world.settle()
    return JobCollector(lambda: world.state, lambda: world.now)


def scheduler() -> Collector:
    metrics = ClusterMetrics(Desk())
    metrics.tell_learning(Learning())
    metrics.tell_exploration(Exploration())
    metrics.tell_sharing(Sharing())
    return metrics.registry


def operator() -> Collector:
    metrics = OperatorMetrics()
    metrics.job(Desired("digits", "ns", "uid"), ElasticJobStatus(phase="Running", workers=1))
    return metrics.registry


def told(metrics: Iterable[Metric]) -> Mapping[str, Described]:
    """What the code tells, under the names that one asks Prometheus for."""
    return {
        metric.name + ("_total" if metric.type == "counter" else ""): Described(
            metric.type, frozenset(label for sample in metric.samples for label in sample.labels) - ADDED_BY_PROMETHEUS
        )
        for metric in metrics
    }


def documented(heading: str) -> Mapping[str, Described]:
    """What the section of a program says."""
    section = re.split(r"^## ", PAGE.read_text(), flags=re.M)
    (text,) = [part for part in section if part.startswith(f"{heading}\n")]
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    found = [ROW.fullmatch(row) for row in rows]
    assert all(found), rows
    return {row[1]: Described(row[2], frozenset(filter(None, row[3].split(", ")))) for row in found}


@pytest.mark.parametrize(
    ("heading", "program"),
    [("The coordinator", coordinator), ("The scheduler", scheduler), ("The operator", operator)],
)
def test_the_page_says_what_the_program_tells(heading, program):
    assert documented(heading) == told(program().collect())
