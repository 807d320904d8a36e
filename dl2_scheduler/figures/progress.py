"""Figure 10: completion time while a policy learns."""

from collections.abc import Iterator, Mapping
from typing import Any

from dl2_scheduler.figures.draw import Panel, Picture, Row, Series
from dl2_scheduler.figures.lab import Lab, Times
from dl2_scheduler.figures.recipes import Ours, Paper
from dl2_scheduler.sim.metrics import estimate


def curve(name: str, judged: Mapping[int, Times]) -> Series:
    """Return the series of a run: completion times in slots by update."""
    found = [estimate(times) for times in judged.values()]
    return Series(name, list(judged), [each.mean for each in found], [each.margin for each in found])


def curve_rows(judged: Mapping[int, Times], **said: Any) -> Iterator[Row]:
    """Yield the same as rows of a CSV, each with what is said beside."""
    for update, times in judged.items():
        found = estimate(times)
        yield {**said, "update": update, "jct_slots": found.mean, "margin": found.margin}


def progress(lab: Lab) -> Picture:
    """Draw completion time by update: supervised only, online only, one after the other (DL2, figure 10)."""
    drf = lab.times("drf")[: lab.scale.validation]
    panels: list[Panel] = []
    rows: list[Row] = []
    recipes: list[tuple[str, Ours | Paper, Ours | Paper]] = [
        ("ours", lab.ours(), lab.ours(teacher=None)),
        ("paper's", lab.paper(), lab.paper(teacher=None)),
    ]
    for learner, taught, untaught in recipes:
        curves = {
            "supervised only": lab.imitated(taught).curve,
            "supervised, then online": lab.trained(taught).curve,
            "online only": lab.trained(untaught).curve,
        }
        first, *others = (curve(name, judged) for name, judged in curves.items())
        level = {"drf": estimate(drf).mean}
        panels += [
            Panel("passes over the teacher's decisions", [first], f"{learner}: supervised", levels=level, width=0.7),
            Panel("updates", others, f"{learner}: online", levels={**level, first.name: first.y[-1]}),
        ]
        rows += [row for name, judged in curves.items() for row in curve_rows(judged, learner=learner, curve=name)]
        rows += curve_rows({0: drf}, learner=learner, curve="drf")
    return Picture(panels, rows)
