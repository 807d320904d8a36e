"""This module is `dl2 trace`: it generates, converts and shows traces."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import typer

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.jobs import Job, Resources
from dl2_scheduler.commands.common import Json, group, new_table, show, show_json
from dl2_scheduler.commands.simulation.simulated import Slot
from dl2_scheduler.sim.arrivals import EVEN_MIX, JOBS_A_SLOT, Pattern, generate
from dl2_scheduler.sim.convert.sources import TraceSource, convert
from dl2_scheduler.sim.trace import read_trace, write_trace
from elastic_ps.system.terminal import say

_HOUR = 3600.0

traces = group("Generate, convert and look at traces: the jobs that come to a cluster.", no_args_is_help=True)

Out = Annotated[Path, typer.Option("-o", "--out", help="Trace to write.")]


@traces.command("generate")
def generate_trace(
    out: Out,
    pattern: Annotated[Pattern, typer.Option(help="How jobs arrive.")] = Pattern.GOOGLE,
    jobs: Annotated[int, typer.Option(help="How many.")] = 60,
    seed: Annotated[int, typer.Option(help="Of all that is drawn.")] = 0,
    rate: Annotated[float, typer.Option(help="Jobs a slot, on average.")] = JOBS_A_SLOT,
    slot: Slot = 1200.0,
    mix: Annotated[str, typer.Option(help="Weights, as in resnet-50=2,dssm=1; left out: all alike.")] = "",
    epochs_spread: Annotated[float, typer.Option(help="Part by which epochs differ from their model's.")] = 0.0,
    estimate_error: Annotated[float, typer.Option(help="Part by which owners err about epochs.")] = 0.0,
    without_servers: Annotated[
        float, typer.Option(help="Part of the jobs that have no servers: their workers all-reduce.")
    ] = 0.0,
) -> None:
    """Generate jobs; the same options give the same trace."""
    models = dict(map(_weight, mix.split(","))) if mix else EVEN_MIX
    made = generate(
        pattern,
        jobs,
        seed,
        models,
        slot_seconds=slot,
        rate=rate,
        epochs_spread=epochs_spread,
        estimate_error=estimate_error,
        without_servers=without_servers,
    )
    write_trace(out, made)
    say(f"{out}: {_size(made)}")


def _weight(part: str) -> tuple[str, float]:
    name, _, weight = part.partition("=")
    try:
        return name.strip(), float(weight)
    except ValueError:
        raise BadInput(f"--mix: {part!r}: give weights as in resnet-50=2,dssm=1") from None


@traces.command("convert")
def convert_trace(
    sources: Annotated[list[Path], typer.Argument(help="Files of the public trace.", show_default=False)],
    source: Annotated[TraceSource, typer.Option("--from", help="Whose trace it is.")],
    out: Out,
    jobs: Annotated[int | None, typer.Option(min=1, help="Take only the first ones.")] = None,
) -> None:
    """Convert a public trace, and print by which rules."""
    converted = convert(source, sources, jobs)
    write_trace(out, converted.jobs)
    for rule in converted.rules:
        say(f"rule: {rule}")
    for reason, count in sorted(converted.left_out.items()):
        say(f"left out: {count} with {reason}")
    say(f"{out}: {_size(converted.jobs)}")


@traces.command("show")
def show_trace(
    trace: Annotated[Path, typer.Argument(help="Trace to look at.", show_default=False)],
    slot: Slot = 1200.0,
    as_json: Json = False,
) -> None:
    """Show a trace: how many jobs of which model, how long they arrive, what they take."""
    if not slot > 0:
        raise BadInput(f"--slot is {slot}: give seconds above 0")
    jobs = read_trace(trace)
    rows = _rows(jobs)
    if as_json:
        show_json({"trace": str(trace), "jobs": len(jobs), "arrival_seconds": _span(jobs), "models": rows})
        return
    say(f"{trace}: {_size(jobs)}, {len(jobs) / (1 + _span(jobs) / slot):.2f} jobs a slot of {slot:g} s")
    table = new_table(
        model=False,
        jobs=True,
        epochs=True,
        least_epochs=True,
        most_epochs=True,
        samples=True,
        worker=False,
        server=False,
        without_servers=True,
    )
    for row in rows:
        numbers = (
            f"{row[name]:,.0f}" for name in ("jobs", "epochs", "least_epochs", "most_epochs", "samples_per_epoch")
        )
        amounts = (_amounts(row[role]) for role in ("worker", "server"))
        table.add_row(row["model"], *numbers, *amounts, str(row["without_servers"]))
    show(table)


def _rows(jobs: Sequence[Job]) -> list[dict[str, Any]]:
    """Describe the jobs of each model; the demands are those of its first job."""
    rows = []
    for model in sorted({job.model for job in jobs}):
        own = [job for job in jobs if job.model == model]
        epochs = [job.epochs for job in own]
        rows.append(
            {
                "model": model,
                "jobs": len(own),
                "epochs": mean(epochs),
                "least_epochs": min(epochs),
                "most_epochs": max(epochs),
                "samples_per_epoch": mean(job.samples_per_epoch for job in own),
                "worker": own[0].worker,
                "server": next((job.server for job in own if job.has_servers), {}),
                "without_servers": sum(not job.has_servers for job in own),
            }
        )
    return rows


def _amounts(demand: Resources) -> str:
    return ",".join(f"{amount:g}{name}" for name, amount in demand.items() if amount)


def _span(jobs: Sequence[Job]) -> float:
    arrivals = [job.arrival for job in jobs]
    return max(arrivals) - min(arrivals)


def _size(jobs: Sequence[Job]) -> str:
    return f"{len(jobs)} job{'s' if len(jobs) > 1 else ''} within {_span(jobs) / _HOUR:.1f} h"
