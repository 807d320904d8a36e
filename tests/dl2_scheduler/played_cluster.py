"""Jobs and time in a test's hand: a runtime without processes, and a clock that moves when it is waited for."""

import heapq
from dataclasses import dataclass, field

from dl2_scheduler.backends.local.runtime import (
    Declined,
    JobReport,
    LauncherEnding,
    LauncherProcess,
    Over,
    RunningTask,
    Unreachable,
    Usage,
)

SAMPLES = 10.0

DOCUMENT = """
apiVersion: dl2.scheduler/v1alpha1
kind: ElasticJob
metadata:
  name: {name}
spec:
  modelType: digits
  epochs: {epochs}
  workers:
    max: {workers}
    template:
      spec:
        containers:
          - command: [python, digits.py]
  servers:
    max: {servers}
"""


def document(name="digits", epochs=40, workers=4, servers=4):
    return DOCUMENT.format(name=name, epochs=epochs, workers=workers, servers=servers)


class PlayedClock:
    """Stands still but in `wait`, where what `at` has scripted happens at its time."""

    def __init__(self):
        self.time = 1000.0
        self.woken = False
        self.script = []

    def now(self):
        return self.time

    def wake(self):
        self.woken = True

    def at(self, time, act):
        heapq.heappush(self.script, (time, len(self.script), act))

    def wait(self, seconds):
        end = self.time + seconds
        while not self.woken and self.script and self.script[0][0] <= end:
            self.time, _, act = heapq.heappop(self.script)
            act()
        self.time = self.time if self.woken else end
        self.woken = False


@dataclass
class PlayedJob:
    order: object
    process: LauncherProcess
    workers: int
    servers: int
    epochs: float
    since: float
    ending: LauncherEnding | None = None
    over: LauncherEnding | None = None
    answers: bool = True
    refuses: str = ""

    @property
    def speed(self):
        """Samples a second: of the scarcer role, or of all workers of a job without servers."""
        return min(self.workers, self.servers) if self.order.servers else self.workers


@dataclass
class PlayedRuntime:
    """Jobs train from the moment of their start; `calls` tells what was asked.

    It outlives a cluster, as processes do.
    """

    clock: PlayedClock
    epochs: float = 40.0
    save_seconds: float = 0.0
    jobs: dict = field(default_factory=dict)
    saved: dict = field(default_factory=dict)
    changed: dict = field(default_factory=dict)
    calls: list = field(default_factory=list)
    back: str = "server s0 died"
    pins: dict = field(default_factory=dict)
    away: dict = field(default_factory=dict)  # by job: what it waits for

    def start(self, order, started):
        if order.command[1] == "gone.py":
            raise Declined("its folder is gone")
        if order.name in self.away:
            raise Unreachable(self.away[order.name])
        process = LauncherProcess(len(self.calls) + 100, "played")
        started(process)
        epochs = self.saved.get(order.submission, 0.0)
        self.calls.append(("start", order.name, order.workers, order.servers))
        self.jobs[order.name] = PlayedJob(order, process, order.workers, order.servers, epochs, self.clock.now())
        self.changed[order.name] = self.clock.now()
        self.plan_end(self.jobs[order.name])

    def why_not(self, order):
        return self.away.get(order.name, "")

    def plan_end(self, job):
        left = (self.epochs - job.epochs) * SAMPLES / job.speed
        counts = job.workers, job.servers

        def finish():
            if job.ending is None and (job.workers, job.servers) == counts:
                self.end(job.order.name, 0, "finished")

        self.clock.at(self.clock.now() + left, finish)

    def train(self, job):
        now = self.clock.now()
        job.epochs = min(self.epochs, job.epochs + (now - job.since) * job.speed / SAMPLES)
        job.since = now

    def end(self, name, status, reason, is_stopped=False):
        self.train(self.jobs[name])
        self.jobs[name].ending = LauncherEnding(status, reason, self.clock.now(), is_stopped)
        self.clock.wake()

    def watch(self, process):
        self.calls.append(("watch", process.pid))

    def is_alive(self, process):
        return any(job.process == process and job.ending is None for job in self.jobs.values())

    def ending(self, name, process, log):
        return self.jobs[name].ending

    def asked(self, name):
        job = self.jobs[name]
        if not job.answers or job.ending is not None:
            raise Unreachable("nobody answers")
        if job.refuses:
            raise Declined(job.refuses)
        self.train(job)
        return job

    def report(self, name, process):
        if self.jobs[name].over is not None:
            raise Over(name, self.jobs[name].over)
        refuses, self.jobs[name].refuses = self.jobs[name].refuses, ""
        try:
            job = self.asked(name)
        finally:
            self.jobs[name].refuses = refuses
        counts = job.workers, job.servers
        first = 10_000 * list(self.jobs).index(name)
        tasks = [RunningTask(f"w{place}", "worker", first + 1000 + place) for place in range(job.workers)]
        tasks += [RunningTask(f"s{place}", "server", first + 2000 + place) for place in range(job.servers)]
        told = (job.epochs > 0, job.epochs, SAMPLES, float(job.speed), tuple(tasks))
        return JobReport(True, "", *counts, *counts, *told)

    def since(self, name):
        self.asked(name)
        return self.changed[name]

    def why_back(self, name):
        self.asked(name)
        return self.back

    def set_back(self, name, epochs):
        self.train(self.jobs[name])
        self.jobs[name].epochs = epochs

    def scale(self, name, workers, servers):
        job = self.asked(name)
        self.calls.append(("scale", name, workers, servers))
        job.workers, job.servers = workers, servers
        self.changed[name] = self.clock.now()
        self.plan_end(job)

    def save(self, name, done):
        try:
            job = self.asked(name)
        except (Unreachable, Declined) as error:
            done(str(error))
            return
        self.calls.append(("save", name))

        def finish():
            if job.ending is None:
                self.train(job)
            self.saved[job.order.submission] = job.epochs
            done("")

        self.clock.at(self.clock.now() + self.save_seconds, finish)

    def pin(self, pid, cores):
        self.pins[pid] = sorted(cores)

    def stop(self, name, process):
        self.calls.append(("stop", name))
        if self.jobs[name].ending is None:
            self.end(name, 0, "stopped by an operator", is_stopped=True)

    def tend(self, shapes):
        self.shapes = shapes

    def usage(self, tasks):
        return {task.pid: Usage(0.5, 0.0, 1 << 20) for task in tasks}

    @property
    def isolation(self):
        return "played"

    def log(self, name, submission, run):
        return f"{name}-{submission}.{run}.log"
