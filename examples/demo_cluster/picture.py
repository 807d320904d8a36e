"""This module draws the workers and servers of every job over time, under each policy."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import MaxNLocator

from examples.demo_cluster.jobs import SubmittedJob
from examples.demo_cluster.play import Played


def draw(plays: Sequence[Played], jobs: Sequence[SubmittedJob], path: Path) -> None:
    """Draw to a PNG file: a column for each policy, a row for each job.

    Args:
        plays: one of each policy.
        jobs: that were played.
        path: of the file.
    """
    figure, every = plt.subplots(
        len(jobs), len(plays), figsize=(6 * len(plays), 1.3 * len(jobs)), sharex=True, sharey=True, squeeze=False,
        layout="constrained",
    )  # fmt: skip
    most = max(
        count for played in plays for look in played.looks for counts in look.counts.values() for count in counts
    )
    for column, played in enumerate(plays):
        every[0][column].set_title(f"{played.policy}: {played.mean:.0f} s a job")
        every[-1][column].set_xlabel("seconds")
        for row, job in enumerate(jobs):
            axes = every[row][column]
            at = [look.at for look in played.looks]
            counts = [look.counts.get(job.name, (0, 0)) for look in played.looks]
            workers, servers = ([each[role] for each in counts] for role in range(2))
            axes.fill_between(at, workers, step="post", color="tab:blue", alpha=0.6, linewidth=0, label="workers")
            axes.step(at, servers, where="post", color="tab:orange", linewidth=1.5, label="servers")
            axes.axvspan(job.arrival, job.arrival + played.seconds[job.name], color="tab:gray", alpha=0.15)
            axes.set_ylabel(job.name, fontsize=8)
            axes.set_ylim(0, most + 0.5)
            axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    every[0][0].legend(fontsize=7, loc="upper right")
    figure.savefig(path, dpi=100)
    plt.close(figure)
