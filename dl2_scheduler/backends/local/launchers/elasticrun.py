"""This module runs jobs by `elasticrun`: their folders lie in the cluster's, their coordinators answer by gRPC."""

import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from coordinator.client import ClientError, CoordinatorClient, CoordinatorUnreachable
from coordinator.core.job import names_who_stopped
from coordinator.core.plans.scale_goal import RESTORE
from coordinator.ctl.job_folders import LocalJob, read_job
from dl2_scheduler.backends.local.launchers import processes
from dl2_scheduler.backends.local.launchers.old_folders import forget_older
from dl2_scheduler.backends.local.launchers.outputs import last_line
from dl2_scheduler.backends.local.runtime import (
    SERVER,
    WORKER,
    Declined,
    JobReport,
    LauncherEnding,
    LauncherProcess,
    LaunchOrder,
    Over,
    RunningTask,
    TaskShape,
    Unreachable,
    Usage,
)
from dl2_scheduler.backends.local.storage_looks import StorageLooks
from dl2_scheduler.backends.local.tasks.task_files import TaskFiles
from dl2_scheduler.cluster.ranges import LEAST_SPEED, MOST_EPOCHS, MOST_SAMPLES, MOST_SPEED, or_not_known
from elastic_ps.control.codec import data_from_pb
from elastic_ps.control.token import read_token
from elastic_ps.core.checkpoint_names import is_of
from elastic_ps.core.errors import EXIT_LATER, ConfigurationError, StorageError
from elastic_ps.core.job_mode import JobMode
from elastic_ps.system import storage
from elastic_ps.system.passing_errors import MACHINE_LACKS
from elastic_ps.system.process.own_programs import own_program
from elastic_ps.system.state_folder import jobs_folder
from protos import elastic_pb2 as pb

_CALL_SECONDS = 5.0
_CHECKPOINT_SECONDS = 120.0
_JOIN_CORE_SECONDS, _LEAST_CORES = 60.0, 1e-9  # documents of before may ask for parts of a core that are none
_USAGE_SECONDS = 0.5
_OVER = {"finished": 0, "failed": 1}  # and the exit status of the launcher
_UNSAID = "it was killed, or the machine went down"
_LACKS = "something of this machine that its launcher needs is lacking: a disk may be full"
_RESTARTS = "--max-restarts"


class ElasticrunRuntime:
    """An `ElasticrunRuntime` starts launchers and asks their coordinators; see `JobRuntime`.

    Args:
        folder: the folder of the cluster's state.
        ended: called from a thread when a launcher has ended.
        tasks: what keeps tasks to their share.
        umask: the umask of jobs' processes; -1: this process's.
    """

    def __init__(self, folder: Path, ended: Callable[[], None], tasks: TaskFiles, umask: int = -1):
        self._folder = folder
        self._ended = ended
        self._tasks, self._umask = tasks, umask
        self._looks = StorageLooks()
        self._children: dict[int, subprocess.Popen[bytes]] = {}  # launchers of this `dl2 serve`, by their pids
        self._environment = {**os.environ, "XDG_STATE_HOME": str(folder)}

    def start(self, order: LaunchOrder, started: Callable[[LauncherProcess], None]) -> None:
        """See `JobRuntime.start`."""
        _python, *arguments = order.command
        log = self.log(order.name, order.submission, order.run)
        try:
            self._check_folder(order)
            command = [*own_program("elastic_ps.launch", order.folder), *self._options(order), *arguments]
            self._tasks.write(order.shape)
            forget_older(jobs_folder(self._environment), order.name, order.identity)
            log.parent.mkdir(exist_ok=True)  # people delete logs, and may delete their folder
            child = processes.start(command, self._environment, order.folder, log, started, self._ended, self._umask)
        except OSError as error:
            why = f"it cannot be started in {order.folder}: {error.strerror}"
            if error.errno in MACHINE_LACKS or order.run > 1:  # which may be another job's doing; it could be before
                raise Unreachable(f"{why}: it waits, and is tried again") from error
            raise Declined(why) from error
        except ValueError as error:  # \0 or half a character: documents have none, but records of before may
            raise Declined(f"its command cannot be given to a program: {error}") from error
        self._children[child.pid] = child

    def why_not(self, order: LaunchOrder) -> str:
        """See `JobRuntime.why_not`."""
        try:
            self._check_folder(order)
            self._options(order)
        except (Unreachable, OSError) as error:
            return str(error)
        return ""

    def _check_folder(self, order: LaunchOrder) -> None:
        """Let a job wait whose folder hangs, as its start would; or is gone, though the job has run there before."""
        try:
            is_there = self._looks.ask(str(order.folder), partial(os.path.isdir, order.folder))
        except TimeoutError:
            why = f"its folder {order.folder} does not answer"
            raise Unreachable(f"{why}: it waits, and is tried again") from None
        if not is_there and order.run > 1:
            raise Unreachable(
                f"its folder {order.folder} is not there: it waits until it is there again (is its file system "
                f"mounted?); dl2 stop {order.name} gives it up"
            )

    def _options(self, order: LaunchOrder) -> list[str]:
        root = f"{order.checkpoint_url or self._folder / 'checkpoints'}/{order.shape.key}"
        options = {
            "--name": order.name,
            "--workers": str(order.workers),
            "--identity": order.identity,
            _RESTARTS: str(order.retry_limit),
            "--join-timeout": f"{self._join_seconds(order):.0f}",
            "--checkpoint": root,
            "--wrap-worker": self._tasks.wrap(order.shape, WORKER),
        }
        if order.checkpoint_interval is not None:
            options["--checkpoint-interval"] = str(order.checkpoint_interval)
        if order.run > 1 and self._has_checkpoint(root, order.identity):
            options["--restore"] = root
        elif order.was_saved:
            raise Unreachable(
                f"the checkpoint that it was suspended with is not in {root}: it waits until that is there again (is "
                f"its file system mounted?); dl2 stop {order.name}, and submit it again, if it is to begin anew"
            )
        options |= self._options_of_servers(order)
        return [word for option in options.items() for word in option]

    def _has_checkpoint(self, root: str, identity: str) -> bool:
        """Return what `_has_checkpoint` does; beside the loop, which no storage that hangs may keep from other jobs."""
        try:
            return self._looks.ask(root, partial(_has_checkpoint, root, identity))
        except TimeoutError:
            raise Unreachable(f"its checkpoints in {root} are looked for still: it waits, and is tried again") from None

    def _options_of_servers(self, order: LaunchOrder) -> dict[str, str]:
        """Return what is said of the job's servers, or that it has none."""
        if order.mode is JobMode.ALL_REDUCE:
            return {"--mode": order.mode.value}
        return {
            "--servers": str(order.servers),
            "--replicas": str(order.block_replicas),
            "--wrap-server": self._tasks.wrap(order.shape, SERVER),
        }

    def _join_seconds(self, order: LaunchOrder) -> float:
        """Return how long a task may take to begin: one that has a part of a core takes so much longer."""
        least = min(self._tasks.share(order.shape, role) for role in order.shape.slots)
        return _JOIN_CORE_SECONDS / min(1.0, max(_LEAST_CORES, least))

    def watch(self, process: LauncherProcess) -> None:
        """See `JobRuntime.watch`."""
        processes.watch(process, self._ended)

    def is_alive(self, process: LauncherProcess) -> bool:
        """See `JobRuntime.is_alive`."""
        return processes.is_alive(process)

    def ending(self, name: str, process: LauncherProcess, log: Path) -> LauncherEnding:
        """See `JobRuntime.ending`."""
        job, child = self._job(name), self._children.pop(process.pid, None)
        if job is not None and job.is_of(process.pid, process.birth):
            return _ending_of(job)
        said, at = last_line(log)
        status = child.wait() if child is not None else -1
        if status == EXIT_LATER:  # of a full disk its log has nothing either
            return LauncherEnding(status, said or _LACKS, at)
        if said and status >= 0:
            return LauncherEnding(min(status, 1), said, at)  # its last word, by which it has refused its job
        return LauncherEnding(None, f"{_UNSAID}; its last line: {said}" if said else _UNSAID, at)

    def report(self, name: str, process: LauncherProcess) -> JobReport:
        """See `JobRuntime.report`."""
        job = self._job(name)
        if job is not None and job.is_of(process.pid, process.birth) and job.status is not None:
            raise Over(name, _ending_of(job))
        with self._client(name) as client:
            status = client.status()
        if status.phase in _OVER:
            code, reason = _OVER[status.phase], status.reason
            raise Over(name, LauncherEnding(code, _words(reason), 0.0, code == 0 and names_who_stopped(reason)))
        return report_of(status)

    def since(self, name: str) -> float | None:
        """See `JobRuntime.since`. A coordinator that was rebuilt from its nodes has no plan from before."""
        with self._client(name) as client:
            return since_of(client.plans())

    def why_back(self, name: str) -> str:
        """See `JobRuntime.why_back`."""
        with self._client(name) as client:
            return why_back_of(client.plans())

    def scale(self, name: str, workers: int, servers: int) -> None:
        """See `JobRuntime.scale`."""
        with self._client(name) as client:
            client.scale(workers, servers or None, cause="scheduler")  # a job without servers is not asked to have 0

    def save(self, name: str, done: Callable[[str], None]) -> None:
        """See `JobRuntime.save`."""
        try:
            threading.Thread(target=self._save, args=(name, done), name=f"save-{name}", daemon=True).start()
        except RuntimeError:
            done("no thread can be started")

    def _save(self, name: str, done: Callable[[str], None]) -> None:
        problem = "the scheduler failed while the job was being saved"
        try:
            with self._client(name) as client:
                client.checkpoint(seconds=_CHECKPOINT_SECONDS)
            problem = ""
        except (Unreachable, Declined) as error:
            problem = str(error)
        finally:
            done(problem)

    def stop(self, name: str, process: LauncherProcess) -> None:
        """See `JobRuntime.stop`."""
        try:
            with self._client(name) as client:
                client.stop()
        except (Unreachable, Declined):
            processes.terminate(process)
        else:
            processes.let_go_on(process)  # one that is stopped would not see the end of its job, and keep its name

    def usage(self, tasks: Sequence[RunningTask]) -> Mapping[int, Usage]:
        """See `JobRuntime.usage`."""
        before, began = processes.totals(), time.monotonic()
        time.sleep(_USAGE_SECONDS)
        after, seconds = processes.totals(), time.monotonic() - began
        return {
            task.pid: Usage(
                max(0.0, total.cpu_seconds - before[task.pid].cpu_seconds) / seconds,
                self._tasks.isolation.limit_of(task.pid),
                total.bytes,
            )
            for task in tasks
            if task.pid in before and (total := after.get(task.pid)) is not None
        }

    @property
    def isolation(self) -> str:
        """See `JobRuntime.isolation`."""
        return self._tasks.words

    def pin(self, pid: int, cores: frozenset[int]) -> None:
        """See `JobRuntime.pin`."""
        processes.pin(pid, cores)

    def tend(self, shapes: Sequence[TaskShape]) -> None:
        """See `JobRuntime.tend`."""
        self._tasks.tend(shapes)

    def log(self, name: str, submission: int, run: int) -> Path:
        """See `JobRuntime.log`."""
        return self._folder / "logs" / f"{name}-{submission}.{run}.log"

    def _job(self, name: str) -> LocalJob | None:
        return read_job(jobs_folder(self._environment) / name)

    @contextmanager
    def _client(self, name: str) -> Iterator[CoordinatorClient]:
        job = self._job(name)
        if job is None or job.ended is not None:
            raise Unreachable(f"{name} has no coordinator (yet)")
        try:
            with CoordinatorClient(job.coordinator, read_token(job.token_file), _CALL_SECONDS) as client:
                yield client
        except CoordinatorUnreachable as error:
            raise Unreachable(str(error)) from error
        except (ClientError, ConfigurationError) as error:
            raise Declined(str(error)) from error


def _ending_of(job: LocalJob) -> LauncherEnding:
    return LauncherEnding(job.status, _words(job.reason) or _UNSAID, job.ended or 0.0, job.was_stopped)


def _words(reason: str) -> str:
    """Return a launcher's reason for whoever has submitted the job: it names what the document can change."""
    return reason.replace(_RESTARTS, "retryLimit")


def _has_checkpoint(root: str, identity: str) -> bool:
    """Return whether this submission has saved itself there: another cluster's may have had its name and number."""
    try:
        found = storage.candidates(root)
        own = (url for url in found if is_of(url, identity) or is_of(url, ""))
        return any(storage.is_complete(url) for url in own)
    except FileNotFoundError:
        return False
    except StorageError as error:
        why = f"its checkpoints in {root} cannot be read now, so it would begin anew"
        raise Unreachable(f"{why}: it waits, and is tried again: {error}") from error


def _task(node: pb.NodeStatus) -> RunningTask:
    return RunningTask(node.member.id, WORKER if node.member.role == pb.WORKER else SERVER, node.pid)


def _order(task: RunningTask) -> tuple[str, int]:
    return task.role, int(task.id[1:])  # w10 comes after w9


def since_of(plans: Sequence[pb.Plan]) -> float | None:
    """Return when the last of a job's plans was committed, in unix seconds.

    It is None where a plan is about to be: the job has its counts already.
    """
    if any(plan.phase == "ARMED" for plan in plans):
        return None
    return max((plan.ended for plan in plans if plan.phase == "COMMITTED"), default=None)


def why_back_of(plans: Sequence[pb.Plan]) -> str:
    """Return why the last of a job's plans that began with a restore did so."""
    causes = [plan.cause.removeprefix(RESTORE) for plan in plans if plan.cause.startswith(RESTORE)]
    return causes[-1] if causes else ""


def _is_unsure(status: pb.StatusReply) -> bool:
    """Return whether a coordinator that says that nothing is trained may only not have heard of it yet.

    One that has been started again knows how far its nodes are when they have told.
    """
    return status.term > 1 and status.phase != "starting"


def report_of(status: pb.StatusReply) -> JobReport:
    """Return a coordinator's words as the cluster takes them."""
    members = [node.member.role for node in status.nodes if node.state == "member"]
    data = data_from_pb(status.data)
    progress = status.epoch + (status.step / data.steps_per_epoch if data.elastic else 0.0)
    return JobReport(
        trains=status.phase == "running",
        reason=status.reason,
        workers=members.count(pb.WORKER),
        servers=members.count(pb.SERVER),
        wanted_workers=status.wanted_workers,
        wanted_servers=status.wanted_servers,
        has_trained=status.version > 0 or _is_unsure(status),
        epochs=min(progress, MOST_EPOCHS),
        samples_per_epoch=or_not_known(float(data.samples), MOST_SAMPLES),
        samples_per_second=or_not_known(status.rate, MOST_SPEED, LEAST_SPEED),
        tasks=tuple(sorted((_task(node) for node in status.nodes if node.pid and node.state != "gone"), key=_order)),
    )
