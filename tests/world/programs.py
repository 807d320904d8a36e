"""What the processes of the world run: production's programs, and training scripts whose result tells every sample."""

from collections.abc import Callable, Sequence

import numpy as np

import coordinator.__main__
import elastic_ps.server.__main__
from elastic_ps.launch.job_agent import JobAgent
from elastic_ps.node.settings import NodeSettings
from elastic_ps.transport.frames import Frame
from elastic_ps.worker.script.worker_job import WorkerJob
from tests.world import serverless, static, training
from tests.world.faults.job_draw import JobDraw
from tests.world.kernel.scheduler import Process


def run_coordinator(process: Process) -> int:
    """Run `python -m coordinator`."""
    return coordinator.__main__.main(process.arguments)


def run_server(process: Process) -> int:
    """Run `python -m elastic_ps.server`."""
    return elastic_ps.server.__main__.main()


def run_launcher(process: Process, agent: JobAgent) -> int:
    """Run `elasticrun`."""
    return agent.run().status


def run_worker(process: Process, draw: JobDraw, watch: "Watch", pace: Callable[[], tuple[float, float]]) -> int:
    """Run a training script, and what Python does at its end."""
    settings = NodeSettings.from_environment(process.environment)
    process.make_job = lambda: serverless.make_job(settings) if draw.serverless else WorkerJob(settings)  # type: ignore[attr-defined]
    try:
        script = serverless if draw.serverless else static if draw.static else training
        script.train(process, draw, watch, pace)
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    except Exception as error:  # noqa: BLE001  # as the interpreter does
        watch.crashed(process, error)
        status = 1
    process.failed = status != 0
    for act in process.leaving:
        try:
            act()
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else 1
    return status


class Watch:
    """A `Watch` sees what scripts see. See `oracle.Oracle`."""

    scripts_ended = 0

    def stepped(self, process: Process, job: WorkerJob, arrays: list[np.ndarray]) -> None:
        """Take note that a worker begins a step with these parameters."""

    def pulled(self, process: Process, job: WorkerJob, arrays: list[np.ndarray]) -> None:
        """Take note that a worker has pulled these parameters between two steps."""

    def counted(self, process: Process, own: int, before: list[np.ndarray], arrays: list[np.ndarray]) -> None:
        """Take note of the parameters before and after a step of a script that draws its own batches."""

    def started(self, process: Process) -> None:
        """Take note that a worker's script begins."""

    def finished(self, process: Process, arrays: list[np.ndarray]) -> None:
        """Take note that a worker's script has ended with these parameters."""

    def crashed(self, process: Process, error: Exception) -> None:
        """Take note that a script has raised."""

    def sent(self, process: Process, frame: Frame, payload: Sequence[memoryview]) -> None:
        """Take note of a frame on the data plane."""

    def overwritten(self, process: Process, sender: Process, frame: Frame) -> None:
        """Take note that a process uses a payload in shared memory that is not what was sent."""
