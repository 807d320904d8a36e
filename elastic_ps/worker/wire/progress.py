"""`WorkerProgress` collects what a worker tells about its speed and its metrics."""

import statistics
import threading
import time
from collections import deque
from itertools import islice

from protos import elastic_pb2 as pb

_RECENT = 20
_KNOWN = 1e-6
"""Samples a second of a worker that has told its rate, at least: 0 says that it is not known yet."""

REPORT_STEPS = 5000
"""Most steps of one report: with all of a long time in which there was no coordinator none would ever arrive."""

MOST_METRICS = 100
"""Most names of metrics in a report."""

KEPT_STEPS = 200_000
"""Most steps that wait for a coordinator; older ones are not told any more."""


class WorkerProgress:
    """`WorkerProgress` has step times and reported metrics: the script's thread collects, the session's sends them."""

    def __init__(self) -> None:
        self.finished = False
        self.exchanging = False  # the script waits for an exchange
        self.place = 0  # the last step that the script has begun, as barriers name it
        self.final_report = threading.Event()
        self._lock = threading.Lock()
        self._recent: deque[float] = deque(maxlen=_RECENT)  # seconds of steps
        self._rated: deque[tuple[float, int]] = deque(maxlen=_RECENT)  # those of the present configuration, and samples
        self._switched = False  # since the last step
        self._unsent: deque[pb.StepTime] = deque(maxlen=KEPT_STEPS)
        self._metrics: dict[str, float] = {}
        self._step = 0
        self._last: float | None = None
        self._zero = time.time() - time.monotonic()  # so that no change of the machine's clock makes a step long

    def stepped(self, version: int, samples: int) -> None:
        """Note a step that ended at `version` with `samples` of this worker's."""
        now = time.monotonic()
        with self._lock:
            seconds = now - self._last if self._last is not None else 0.0
            self._last = now
            if seconds:
                self._recent.append(seconds)
                if not self._switched:  # what began in another configuration says nothing of this one
                    self._rated.append((seconds, samples))
            self._switched = False
            self._unsent.append(pb.StepTime(version=version, end=self._zero + now, seconds=seconds, samples=samples))

    def switched(self) -> None:
        """Forget how fast steps were in another configuration than the one that has come into force."""
        with self._lock:
            self._rated.clear()
            self._switched = True

    def metrics(self, step: int, values: dict[str, float]) -> None:
        """Take the metrics of a step that the script hands over; those of an older step than known are not taken."""
        with self._lock:
            if step >= self._step:
                self._step = step
                others = {name: value for name, value in self._metrics.items() if name not in values}
                # each report has all of them: whoever gives each step a name would have them grow for ever
                self._metrics = dict(list((others | values).items())[-MOST_METRICS:])

    def report(self, version: int) -> pb.ReportRequest:
        """Return what has not been sent, and the present figures."""
        with self._lock:
            seconds = statistics.median(self._recent) if self._recent else 0.0
            return pb.ReportRequest(
                version=version,
                step_seconds=seconds,
                rate=self._rate(),
                metrics=self._metrics,
                steps=list(islice(self._unsent, REPORT_STEPS)),
                finished=self.finished,
                exchanging=self.exchanging,
                place=self.place,
            )

    def _rate(self) -> float:
        """Return the samples a second of the last steps; 0: not known yet.

        The step under way counts as if it ended now, where that makes the rate lower: that of a worker that stands
        falls towards 0, and a step in which the script evaluates makes it no lower than it is when that step has ended.
        """
        elapsed = sum(seconds for seconds, _ in self._rated)
        samples = sum(samples for _, samples in self._rated)
        if not elapsed or self._last is None:
            return 0.0
        under_way = time.monotonic() - self._last
        with_it = (samples + samples / len(self._rated)) / (elapsed + under_way)
        return max(min(samples / elapsed, with_it), _KNOWN)

    def reported(self, request: pb.ReportRequest, is_kept: bool = True) -> None:
        """Drop what a report has told: it has arrived.

        Args:
            request: the report.
            is_kept: what it had for the ledger is, too. Else it was not the final one, whatever it said.
        """
        with self._lock:
            told = request.steps[-1].version if request.steps else -1
            while self._unsent and self._unsent[0].version <= told:
                self._unsent.popleft()
        if request.finished and is_kept:
            self.final_report.set()
