"""Runs of the simulator of Sia's authors are processes of its interpreter; they have a limit, and results are kept."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from benchmarks.support.kept import settings_key

ROOT = Path(__file__).resolve().parents[2]
NEEDED_FILES = "cluster.py", "sia.py", "gavel.py", "goodput.py", "simulator_config.py", "workloads"
MODULES = {
    "numpy": "numpy<1.24",
    "pandas": "pandas<2",
    "scipy": "scipy<1.12",
    "cvxpy": "cvxpy<1.5",
    "cylp": "cylp",
    "ecos": "ecos",
    "autograd": "autograd",
    "psutil": "psutil",
}
"""What the simulator imports, and what pip installs for it under Python 3.10."""
PLAYING = "play.py", "shortcuts.py"
"""What every run hangs on, beside the simulator."""
DECIDING = "choice.py", "course.py", "length_aware.py", "model_history.py", "policy_classes.py"
"""What decisions hang on that know lengths."""
_CHECK = """
import importlib, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError:
        print(name)
"""
_CHECK_SECONDS = 300.0
_LAST_LINES = 5


class CannotRun(Exception):
    """The simulator or its interpreter is not as it has to be; the text says what is missing and how to get it."""


@dataclass(frozen=True)
class Run:
    """A run plays one workload under one policy.

    Attributes:
        trace: folder of workloads.
        number: of the workload.
        policy: of `play.POLICIES`.
        restart: seconds of every restart, or None as the simulator has it for each model.
        jobs: the first so many of the workload, 0 for all.
    """

    trace: str
    number: int
    policy: str
    restart: float | None = None
    jobs: int = 0

    @property
    def name(self) -> str:
        """The name that messages use, and the file of its result."""
        restart = "theirs" if self.restart is None else f"{self.restart:g}s"
        return f"{self.trace}-{self.number}-{self.policy}-{restart}" + (f"-{self.jobs}jobs" if self.jobs else "")


class RunningProcesses:
    """The processes of runs are killed together, and none starts after that."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._killed = False

    @contextmanager
    def started(self, command: Sequence[str]) -> Iterator["subprocess.Popen[str]"]:
        """Start a process, and wait for its end.

        Args:
            command: that it runs, in this project's folder.

        Raises:
            CannotRun: the others have been killed.
        """
        with self._lock:
            if self._killed:
                raise CannotRun("the benchmark ends")
            process = subprocess.Popen(
                command, cwd=ROOT, env=_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
            self._running.add(process)
        try:
            with process:
                yield process
        finally:
            self._running.discard(process)

    def kill(self) -> None:
        """Kill all that run, and start no more."""
        with self._lock:
            self._killed = True
            for process in list(self._running):
                process.kill()


@dataclass(frozen=True)
class Simulator:
    """A simulator is the folder of its authors, with the interpreter that runs it.

    Attributes:
        folder: with its cluster.py.
        python: an interpreter of its own.
        kept: folder of results.
        seconds: that a run may take.
    """

    folder: Path
    python: Path
    kept: Path
    seconds: float

    def check(self, runs: Sequence[Run]) -> None:
        """Find out whether runs can start.

        Args:
            runs: whose workloads have to be there.

        Raises:
            CannotRun: a file, the interpreter or a package of it is missing.
        """
        for name in NEEDED_FILES:
            if not (self.folder / name).exists():
                raise CannotRun(
                    f"{self.folder} is not the simulator of Sia's authors: it has no {name}. Give --simulator the "
                    "folder sia-simulator of a checkout of github.com/siasosp23/artifacts, which is not shipped here"
                )
        for run in runs:
            if not self.workload(run).is_file():
                raise CannotRun(
                    f"the simulator has no {self.workload(run)}: ask for fewer --workloads, or other --traces"
                )
        missing = self._missing_modules()
        if missing:
            packages = " ".join(f"'{MODULES[name]}'" for name in missing)
            raise CannotRun(
                f"{self.python} lacks {', '.join(missing)}, which the simulator needs: "
                f"{self.python} -m pip install {packages}"
            )

    @property
    def _python(self) -> Path:
        """The interpreter from anywhere; a link of a virtual environment stays one."""
        return self.python.absolute()

    def workload(self, run: Run) -> Path:
        """Return the file of a run's workload."""
        return self.folder / "workloads" / run.trace / f"workload-{run.number}.csv"

    def results(self, runs: Sequence[Run], lanes: int) -> dict[Run, Mapping[str, Any]]:
        """Return what came of each run that ended in time; the others are told of. No process outlives the call.

        Args:
            runs: to be made, or found among those that were kept.
            lanes: processes at the same time.
        """
        processes = RunningProcesses()
        with ThreadPoolExecutor(lanes) as pool:
            try:
                found = list(pool.map(partial(self._result, processes), runs))
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
                processes.kill()
        return {run: result for run, result in zip(runs, found, strict=True) if result is not None}

    def _result(self, processes: RunningProcesses, run: Run) -> Mapping[str, Any] | None:
        path = self.kept / f"{run.name}-{self._key(run)}.json"
        if not path.exists():
            self.kept.mkdir(parents=True, exist_ok=True)
            trouble = self._play(processes, run, path)
            if trouble is not None:
                print(f"{run.name}: {trouble}", flush=True)
                return None
        result: Mapping[str, Any] = json.loads(path.read_text())
        seconds = list(result["completion_seconds"].values())
        print(
            f"{run.name}: {sum(seconds) / len(seconds) / 3600:.3f} h a job, {result['core_seconds']:.0f} s of a core",
            flush=True,
        )
        return result

    def _play(self, processes: RunningProcesses, run: Run, path: Path) -> str | None:
        """Run the simulator, and return what went wrong, if anything."""
        fresh = path.with_suffix(".new")
        command = [str(self._python), "-m", "benchmarks.sia_simulator.play", "--simulator", str(self.folder.resolve())]
        command += ["--workload", str(self.workload(run).resolve()), "--policy", run.policy, "--jobs", str(run.jobs)]
        command += ["--out", str(fresh.resolve())] + ([] if run.restart is None else ["--restart", str(run.restart)])
        with processes.started(command) as process:
            try:
                _, errors = process.communicate(timeout=self.seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                return f"did not end within {self.seconds:g} s and was killed; allow more by --minutes"
        if process.returncode != 0:
            return "failed: " + " | ".join(errors.strip().splitlines()[-_LAST_LINES:])
        fresh.replace(path)
        return None

    def _key(self, run: Run) -> str:
        """Return letters that differ where another result is to be expected: by the workload, our code and theirs."""
        ours = (*PLAYING, *DECIDING) if run.policy.startswith("length-aware") else PLAYING
        code = [(Path(__file__).parent / name).read_bytes() for name in ours]
        theirs = [(path.name, path.read_bytes()) for path in sorted(self.folder.glob("*.py"))]
        return settings_key(self.workload(run).read_bytes(), run, code, theirs)

    def _missing_modules(self) -> list[str]:
        command = [str(self._python), "-c", _CHECK, *MODULES]
        try:
            ended = subprocess.run(
                command, env=_environment(), capture_output=True, text=True, timeout=_CHECK_SECONDS, check=True
            )
        except OSError as error:
            raise CannotRun(
                f"no interpreter for the simulator: {error}. Make one by "
                f"`python3.10 -m venv {self.python.parent.parent}`, or name another by --python"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise CannotRun(
                f"{self.python} did not import the simulator's packages within {_CHECK_SECONDS:g} s"
            ) from error
        except subprocess.CalledProcessError as error:
            raise CannotRun(f"{self.python} is no Python that runs: {error.stderr.strip()[-200:]}") from error
        return ended.stdout.split()


def _environment() -> dict[str, str]:
    """Return this process's environment, with one thread for each run, and nothing of this interpreter's own."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {
        **{name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")},
        **threads,
    }
