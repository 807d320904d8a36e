"""This module is `dl2 figure`: it draws a figure of a paper from runs of our own."""

from pathlib import Path
from typing import Annotated

import typer

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.commands.simulation.simulated import SpeedTable, known_speeds
from dl2_scheduler.sim.events.worlds import formula, table
from elastic_ps.system.process.descendants import descendants_end_with_me
from elastic_ps.system.terminal import say


def figure(
    number: Annotated[
        str, typer.Argument(metavar="N", help="9 to 18, table2, loss, reward, chic-4a, harmony-1, graph-7 and so on.")
    ],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where it is written; runs are kept there.")],
    speeds: SpeedTable = None,
    seed: Annotated[int, typer.Option(min=0, help="Of everything.")] = 0,
) -> None:
    """Draw a figure of the DL2, Chic, Harmony or graph paper from runs of our own: a picture, and a file of numbers."""
    # torch and matplotlib take seconds to import, which no other command should
    from dl2_scheduler.figures.chic.lab import ChicLab
    from dl2_scheduler.figures.chic.registry import CHIC_FIGURES, draw_chic
    from dl2_scheduler.figures.chic.scale import ChicScale
    from dl2_scheduler.figures.lab import Lab
    from dl2_scheduler.figures.live import LiveJobs, LiveScale
    from dl2_scheduler.figures.placement.graph_lab import GraphLab, GraphScale
    from dl2_scheduler.figures.placement.graph_registry import GRAPH_FIGURES, draw_graph
    from dl2_scheduler.figures.placement.registry import HARMONY_FIGURES, draw_harmony
    from dl2_scheduler.figures.registry import LIVE_FIGURES, check_number, draw, draw_live
    from dl2_scheduler.figures.scale import PAPER_LIKE

    check_number(number)
    if speeds is not None and number in LIVE_FIGURES:
        raise BadInput(f"--speeds: figure {number} is of live jobs, whose speeds are their own: leave it out")
    if speeds is not None and number in {*HARMONY_FIGURES, *GRAPH_FIGURES}:
        raise BadInput(f"--speeds: figure {number} is of jobs whose speeds depend on their places: leave it out")
    known = known_speeds(speeds)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"--out {out}: no folder: {error.strerror}") from error
    if number in CHIC_FIGURES:
        world = formula() if speeds is None else table(known)  # the paper gives no speeds
        say(draw_chic(number, ChicLab(out, world, ChicScale(), seed, _tell), out))
    elif number in HARMONY_FIGURES:
        say(draw_harmony(number, out))
    elif number in GRAPH_FIGURES:
        say(draw_graph(number, GraphLab(out, GraphScale(), seed, _tell), out))
    elif number in LIVE_FIGURES:
        descendants_end_with_me()
        say(draw_live(number, LiveJobs(out / "live", LiveScale(), seed, _tell), out))
    else:
        say(draw(number, Lab(out, known, PAPER_LIKE, seed, _tell), out))


def _tell(text: str) -> None:
    say(text, err=True)
