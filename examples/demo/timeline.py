"""The picture: throughput over time, with the plans and the numbers of nodes."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from protos import elastic_pb2 as pb

BIN_SECONDS = 1.0


def draw(steps: Sequence[pb.StepRow], plans: Sequence[pb.Plan], path: Path) -> None:
    """Draw to a PNG file.

    Args:
        steps: of all workers.
        plans: those committed are marked.
        path: of the file.
    """
    ends = np.array([row.step.end for row in steps])
    samples = np.array([row.step.samples for row in steps])
    start = ends.min()
    edges = np.arange(0, ends.max() - start + BIN_SECONDS, BIN_SECONDS)
    throughput, _ = np.histogram(ends - start, bins=edges, weights=samples)
    figure, above = plt.subplots(figsize=(10, 4.5), constrained_layout=True)
    above.step(edges[:-1], throughput / BIN_SECONDS, where="post", color="tab:blue")
    above.set(xlabel="seconds", ylabel="samples per second", title="digits: throughput while the job is scaled")
    above.set_ylim(bottom=0)
    for plan in plans:
        if plan.phase != "COMMITTED" or plan.started < start:
            continue
        above.axvspan(plan.started - start, plan.ended - start, color="tab:orange", alpha=0.25)
        label = " ".join([*(f"+{node}" for node in plan.joined), *(f"-{node}" for node in plan.left)])
        above.annotate(
            label,
            (plan.ended - start, above.get_ylim()[1]),
            rotation=90,
            va="top",
            ha="right",
            fontsize=8,
        )
    workers = above.twinx()
    counts = [
        len({row.worker for row in steps if low <= row.step.end - start < low + BIN_SECONDS}) for low in edges[:-1]
    ]
    workers.step(edges[:-1], counts, where="post", color="tab:gray", linewidth=1)
    workers.set_ylabel("workers that made a step", color="tab:gray")
    workers.set_ylim(0, max(counts, default=1) + 1)
    figure.savefig(path, dpi=120)
    plt.close(figure)
