"""This module counts for Prometheus what the operator does, and how jobs get on."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from k8s.elastic_operator.job.model import Desired
from k8s.elastic_operator.job.status import ElasticJobStatus

_OF_A_JOB = ("namespace", "job")


class OperatorMetrics:
    """An `OperatorMetrics` has all metrics of the operator, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        self.leader = Gauge("dl2_operator_leader", "1 while this process holds the lease", registry=registry)
        self._seconds = Histogram(
            "dl2_operator_reconcile_seconds", "What one reconciliation of a job takes", registry=registry
        )
        self._failures = Counter(
            "dl2_operator_reconcile_failures", "Reconciliations that have to be made again", registry=registry
        )
        self._calls = Gauge(
            "dl2_operator_api_calls", "Requests to the API server since the start, without watches", registry=registry
        )
        self._jobs = Gauge("dl2_job_info", "1 for each job, with its phase", (*_OF_A_JOB, "phase"), registry=registry)
        self._gauges = {
            "workers": Gauge("dl2_job_workers", "Workers in force", _OF_A_JOB, registry=registry),
            "servers": Gauge("dl2_job_servers", "Servers in force", _OF_A_JOB, registry=registry),
            "epoch": Gauge(
                "dl2_job_epoch", "Epochs trained, with the part of the present one", _OF_A_JOB, registry=registry
            ),
            "samples_per_second": Gauge(
                "dl2_job_samples_per_second",
                "Samples that all workers train on in a second",
                _OF_A_JOB,
                registry=registry,
            ),
            "restarts": Gauge("dl2_job_restarts", "Dead pods that were replaced", _OF_A_JOB, registry=registry),
        }
        self._shown: dict[tuple[str, str], tuple[str, str]] = {}  # uid and phase of the job that is shown, by its name

    def count_calls(self, calls: Callable[[], int]) -> None:
        """Take the number of requests from a function that knows it."""
        self._calls.set_function(calls)

    @contextmanager
    def reconciling(self) -> Iterator[None]:
        """Measure one reconciliation."""
        begun = time.perf_counter()
        try:
            yield
        except BaseException:
            self._failures.inc()
            raise
        finally:
            self._seconds.observe(time.perf_counter() - begun)

    def job(self, job: Desired, status: ElasticJobStatus) -> None:
        """Show a job's status, which has been written, or will be in a moment."""
        of = (job.namespace, job.name)
        _, before = self._shown.get(of, ("", status.phase))
        if before != status.phase:
            self._jobs.remove(*of, before)
        self._shown[of] = job.uid, status.phase
        self._jobs.labels(*of, status.phase).set(1)
        for name, gauge in self._gauges.items():
            gauge.labels(*of).set(getattr(status, name))

    def forget(self, job: Desired) -> None:
        """Forget a job whose object is gone; another of its name may be shown already."""
        of = (job.namespace, job.name)
        uid, phase = self._shown.get(of, ("", ""))
        if uid == job.uid:
            del self._shown[of]
            self._jobs.remove(*of, phase)
            for gauge in self._gauges.values():
                gauge.remove(*of)

    def text(self) -> bytes:
        """Return all metrics as Prometheus reads them."""
        return generate_latest(self.registry)
