"""This module tells Prometheus of a job. The state is read when it scrapes; nothing is counted beside it."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, MetricsHandler
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from coordinator.core.job import JobPhase
from coordinator.core.plans.plan import Phase, PlanKind
from coordinator.core.state import State
from coordinator.server import status_view
from elastic_ps.core.configuration import Role
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.system.http_pages import answered, started
from protos import elastic_pb2 as pb

_STEPS = ("registration", "assignment", "migration", "update")
"""The four steps of a plan (DL2 section 5)."""

_ROLES = {pb.WORKER: Role.WORKER, pb.SERVER: Role.SERVER}

Family = CounterMetricFamily | GaugeMetricFamily


@contextmanager
def served(state: Callable[[], State], now: Callable[[], float], host: str, port: int) -> Iterator[int]:
    """Answer scrapes at `host` meanwhile, from a thread of its own; yield the port, a free one for 0.

    Args:
        state: returns the coordinator's present state.
        now: returns unix seconds.
        host: to listen on.
        port: to listen on; 0: a free one.

    Raises:
        ConfigurationError: the port is taken, or none.
    """
    registry = CollectorRegistry()
    registry.register(JobCollector(state, now))
    try:
        server, thread = started(host, port, MetricsHandler.factory(registry))
    except (OSError, OverflowError) as error:
        raise ConfigurationError(f"--metrics {port}: {error}; give another port") from error
    with answered(server, thread) as found:
        yield found


class JobCollector(Collector):
    """A collector reads the metrics of one job.

    Args:
        state: the present one, which never changes itself: any thread may read it.
        now: unix seconds.
    """

    def __init__(self, state: Callable[[], State], now: Callable[[], float]):
        self._state = state
        self._now = now

    def collect(self) -> Iterator[Family]:
        """Yield the metrics of one reading."""
        state = self._state()
        yield from _progress(state, self._now())
        yield from _plans(state)


def _progress(state: State, now: float) -> Iterator[Family]:
    status = status_view.status(state, now)
    phase = GaugeMetricFamily("elastic_phase", "1 for the phase that the job is in.", labels=["phase"])
    for each in JobPhase:
        phase.add_metric([each], each == status.phase)
    yield phase
    counted = Counter((node.member.role, node.state) for node in status.nodes)
    nodes = GaugeMetricFamily("elastic_nodes", "Processes that are registered.", labels=["role", "state"])
    for (role, standing), count in sorted(counted.items()):
        nodes.add_metric([_ROLES[role], standing], count)
    yield nodes
    wanted = GaugeMetricFamily("elastic_wanted_nodes", "Processes that are wanted.", labels=["role"])
    wanted.add_metric([Role.WORKER], status.wanted_workers)
    wanted.add_metric([Role.SERVER], status.wanted_servers)
    yield wanted
    yield GaugeMetricFamily("elastic_term", "Starts of the coordinator and restores of the job.", status.term)
    yield GaugeMetricFamily("elastic_version", "Version that the job is at: steps so far.", status.version)
    yield GaugeMetricFamily("elastic_epoch", "Epoch that the job is in, from 0.", status.epoch)
    yield GaugeMetricFamily("elastic_samples_per_second", "Samples that all members train on in a second.", status.rate)
    yield GaugeMetricFamily("elastic_model_bytes", "Size of all parameters.", status.bytes)
    if status.HasField("protection"):
        words = "Size of the parameters that outlive the death of any one server; only of jobs with replicas."
        yield GaugeMetricFamily("elastic_protected_bytes", words, status.protection.bytes)


def _plans(state: State) -> Iterator[Family]:
    ended = Counter((plan.kind, plan.phase) for plan in state.history)
    plans = CounterMetricFamily("elastic_plans", "Plans that have ended, and how.", labels=["kind", "end"])
    for kind in PlanKind:
        for end in (Phase.COMMITTED, Phase.CANCELLED, Phase.DROPPED):
            plans.add_metric([kind, end], ended[kind, end])
    yield plans
    yield CounterMetricFamily("elastic_deaths", "Workers and servers of the job that died.", state.job.deaths)
    moved = sum(sum(plan.moved.values()) for plan in state.history)
    yield CounterMetricFamily("elastic_moved_bytes", "Bytes that old owners of blocks have sent to new ones.", moved)
    longest = GaugeMetricFamily("elastic_suspension_seconds", "How long the last scaling suspended a worker, at most.")
    steps = GaugeMetricFamily("elastic_plan_seconds", "What each step of the last scaling took.", labels=["step"])
    committed = [plan for plan in state.history if plan.kind is PlanKind.SCALE and plan.phase is Phase.COMMITTED]
    for plan in [plan for plan in committed if not plan.background][-1:]:
        longest.add_metric([], max(plan.suspension.values(), default=0.0) / 1000)
        for step, milliseconds in zip(_STEPS, status_view.steps_ms(plan), strict=True):
            steps.add_metric([step], milliseconds / 1000)
    yield longest
    yield steps
