"""The picture shows throughput over time, with the plans and the numbers of workers, of both jobs."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Patch

from coordinator.archive import Archive
from protos import elastic_pb2 as pb

BIN_SECONDS = 1.0
THROUGHPUT, WORKERS, PLAN = "tab:blue", "tab:gray", "tab:orange"


def draw(device: Archive, digits: Archive, path: Path) -> None:
    """Draw both jobs to a PNG file.

    Args:
        device: of the job with an emulated device.
        digits: of the real job.
        path: of the file.
    """
    figure, (above, below) = plt.subplots(2, figsize=(10, 8), constrained_layout=True)
    _draw_job(above, device, "emulated device, one to each worker: throughput rises with workers while the job goes on")
    _draw_job(below, digits, "real digits: all workers share the cores of this machine")
    orange = Patch(color=PLAN, alpha=0.25, label="a plan under way; while new processes start, the job trains on")
    figure.legend(handles=[orange], loc="outside lower center")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _draw_job(axes: Any, archive: Archive, title: str) -> None:
    steps = sorted((row.step for row in archive.steps), key=lambda step: step.end)
    start = min(step.end - step.seconds for step in steps)
    ends = np.array([step.end - start for step in steps])
    edges = np.append(np.arange(0, ends[-1] - BIN_SECONDS, BIN_SECONDS), ends[-1])  # the last bin is the longest
    whole = np.interp(edges, np.append(0, ends), np.append(0, np.cumsum([step.samples for step in steps])))
    rates = np.diff(whole) / np.diff(edges)
    axes.stairs(rates, edges, baseline=None, color=THROUGHPUT, linewidth=1.5)
    axes.set(xlabel="seconds", title=title, ylim=(0, 1.35 * rates.max()))
    axes.set_ylabel("samples per second", color=THROUGHPUT)
    for plan in archive.plans:
        if plan.phase == "COMMITTED" and plan.cause != "start":
            _mark(axes, plan, start)
    _draw_workers(axes.twinx(), archive.plans, start, ends[-1])


def _mark(axes: Any, plan: pb.Plan, start: float) -> None:
    axes.axvspan(plan.started - start, plan.ended - start, color=PLAN, alpha=0.25, linewidth=0)
    label = " " + " ".join([*(f"+{node}" for node in plan.joined), *(f"-{node}" for node in plan.left)])
    top = axes.get_ylim()[1]
    axes.annotate(label, (plan.ended - start, 0.98 * top), rotation=90, va="top", ha="left", fontsize=8)


def _draw_workers(axes: Any, plans: Iterable[pb.Plan], start: float, end: float) -> None:
    workers: set[str] = set()
    edges, counts = [0.0], []
    for plan in sorted(plans, key=lambda plan: plan.ended):
        if plan.phase == "COMMITTED":
            if plan.ended > start and workers:
                edges.append(plan.ended - start)
                counts.append(len(workers))
            workers = workers.difference(plan.left).union(node for node in plan.joined if node.startswith("w"))
    axes.stairs([*counts, len(workers)], [*edges, end], baseline=None, color=WORKERS, linewidth=1)
    axes.set_ylabel("workers", color=WORKERS)
    axes.set_ylim(0, 1.35 * max(*counts, len(workers)))
