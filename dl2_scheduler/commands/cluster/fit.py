"""This module is `dl2 fit`: it fits speeds, costs of scaling and jobs of a live cluster, for simulations."""

import csv
import io
import math
from contextlib import closing
from dataclasses import astuple, fields
from pathlib import Path
from typing import Annotated

import typer

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.commands.cluster.fit_places import fit_places
from dl2_scheduler.commands.common import Folder, default_folder, new_table, show
from dl2_scheduler.live.history import History
from dl2_scheduler.replay.costs import Costs, scaling_costs
from dl2_scheduler.replay.measured import SpeedFit, SpeedFitter, SpeedRow
from dl2_scheduler.replay.past import PastJobs
from dl2_scheduler.sim.trace import write_trace, write_whole
from elastic_ps.system.terminal import say


def fit(
    out: Annotated[Path | None, typer.Option(help="Speed table to write, as CSV, for --speeds.")] = None,
    folder: Folder = None,
    trace: Annotated[Path | None, typer.Option(help="Write the jobs too, for --trace.")] = None,
    places: Annotated[
        Path | None, typer.Option(help="Write what jobs beside each other cost into this folder, for --placement.")
    ] = None,
    table: Annotated[
        Path | None, typer.Option(help="With --places: measured placements, beside the cluster's.")
    ] = None,
) -> None:
    """Fit speeds, and what scaling costs, to what the jobs of a cluster did."""
    if out is None and (places is None or trace is not None):
        raise BadInput("give --out for a table of speeds, or --places alone for a model of speeds at places")
    if table is not None and places is None:
        raise BadInput("--table: of --places: give both, or leave it out")
    if places is not None and _is_table_alone(out, folder, table):
        fit_places((), table, places)
        return
    with closing(History.of_folder(folder or default_folder())) as history:  # read again and again: it may be long
        if places is not None:
            fit_places(history.slots(), table, places)
        if out is not None:
            _fit_speeds(history, out, trace)


def _is_table_alone(out: Path | None, folder: Path | None, table: Path | None) -> bool:
    """Return whether a table is all that is fitted to: no cluster is named, and none is needed."""
    return out is None and folder is None and table is not None


def _fit_speeds(history: History, out: Path, trace: Path | None) -> None:
    speeds, jobs_seen = SpeedFitter(), PastJobs()
    for slot in history.slots():
        speeds.observe(slot)
        jobs_seen.observe(slot)
    speed_fit = speeds.fit()
    if trace is not None:
        jobs = [past.job for past in jobs_seen.known if speed_fit.knows(past.job)]
        if not jobs:
            raise BadInput("no job of that history has told its samples of an epoch: let jobs run for some slots first")
        write_trace(trace, jobs)
    write_whole(out, _lines(speed_fit))
    view = new_table(type=False, configurations=True, measurements=True, error_of_the_fit=True)
    for each in speed_fit.types:
        error = "-" if math.isnan(each.error) else f"{each.error:.1%}"
        view.add_row(each.model, str(each.configurations), str(each.observations), error)
    show(view)
    say("error: each configuration, fitted to the others; -: fewer than 3 were measured")
    _print_costs(scaling_costs(history.slots(), speed_fit))


def _print_costs(costs: Costs) -> None:
    view = new_table(cost=False, seconds=True, error=True, measurements=True, cut_off=True, of=False)
    for name, cost, of in (
        ("start", costs.start, "from its grant until a job trains"),
        ("join", costs.join, "from their grant until more tasks train too"),
        ("end", costs.end, "from its last step until a job's processes have ended"),
    ):
        if cost is None:
            view.add_row(name, "-", "-", "0", "-", of)
        else:
            error = "-" if math.isnan(cost.error) else f"{cost.error:.1f}"
            view.add_row(name, f"{cost.seconds:.1f}", error, str(cost.count), str(cost.cut_off), of)
    show(view)
    found = costs.scaling
    say(f"in simulations: --start-cost {found.start:.1f} --change-cost {found.change:.1f} --join-cost {found.join:.1f}")


def _lines(speed_fit: SpeedFit) -> list[str]:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([field.name for field in fields(SpeedRow)])
    writer.writerows([_rounded(value) for value in astuple(row)] for row in speed_fit.rows)
    return [text.getvalue()]


def _rounded(value: object) -> object:
    return float(f"{value:.6g}") if isinstance(value, float) else value
