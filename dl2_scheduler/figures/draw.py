"""Pictures of numbers, and the numbers themselves: one PNG, one CSV and one JSON file of settings for each figure."""

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

JCT = "mean completion time, slots of 20 minutes"

Row = Mapping[str, Any]
"""Of a CSV, by column."""

_PANEL = 4.6, 4.0  # inches, width and height
_DOTS = 120  # an inch
_COLOURS = (  # Tol's bright, then two of his muted ones
    "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#222222", "#332288", "#999933",
)  # fmt: skip


@dataclass(frozen=True)
class Series:
    """Numbers of one name.

    Attributes:
        name: for the legend.
        x: where, or the names of the bars' groups.
        y: how much.
        margin: half the 95% interval of each; None: it has none.
    """

    name: str
    x: Sequence[float] | Sequence[str]
    y: Sequence[float]
    margin: Sequence[float | None]


@dataclass(frozen=True)
class Panel:
    """A panel holds axes with all their series.

    Attributes:
        x_label: with the unit.
        series: lines, or bars where `x` are names.
        title: over it.
        y_label: with the unit.
        levels: horizontal lines, by name.
        width: of it, relative to other panels'.
        from_zero: False: the vertical axis begins where numbers do.
        logarithmic: the vertical axis, which then begins where numbers do.
    """

    x_label: str
    series: Sequence[Series]
    title: str = ""
    y_label: str = JCT
    levels: Mapping[str, float] = field(default_factory=dict)
    width: float = 1.0
    from_zero: bool = True
    logarithmic: bool = False


@dataclass(frozen=True)
class Picture:
    """A picture is a figure and its numbers.

    Attributes:
        panels: from left to right.
        rows: of the CSV; all have the same columns.
    """

    panels: Sequence[Panel]
    rows: Sequence[Row]


def save(picture: Picture, title: str, name: str, out: Path, settings: Mapping[str, Any]) -> Path:
    """Write NAME.png, NAME.csv and NAME.json; the path of the picture.

    Args:
        picture: what to draw.
        title: over all panels.
        name: of the files.
        out: folder, which exists.
        settings: for the JSON file.
    """
    with (out / f"{name}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(picture.rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: _cell(value) for key, value in row.items()} for row in picture.rows)
    (out / f"{name}.json").write_text(json.dumps(settings, indent=2) + "\n")
    _draw(picture, title).savefig(out / f"{name}.png", dpi=_DOTS)
    return out / f"{name}.png"


def _cell(value: Any) -> Any:
    return f"{value + 0.0:.4f}" if isinstance(value, float) else value


def _draw(picture: Picture, title: str) -> Figure:
    widths = [panel.width for panel in picture.panels]
    figure = Figure(figsize=(_PANEL[0] * sum(widths), _PANEL[1]), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=10)
    every = figure.subplots(1, len(widths), squeeze=False, width_ratios=widths)[0]
    names = list(dict.fromkeys(name for panel in picture.panels for name in _names(panel)))
    colours = {name: _COLOURS[number % len(_COLOURS)] for number, name in enumerate(names)}
    for axes, panel in zip(every, picture.panels, strict=True):
        (_bars if isinstance(panel.series[0].x[0], str) else _lines)(axes, panel, colours)
        for name, level in panel.levels.items():
            axes.axhline(level, label=name, color=colours[name], linestyle="--", linewidth=1)
        axes.set(xlabel=panel.x_label, ylabel=panel.y_label)
        axes.set_title(panel.title, fontsize=9)
        if panel.logarithmic:
            axes.set_yscale("log")
        elif panel.from_zero:
            axes.set_ylim(bottom=0)
        if any(_names(panel)):
            axes.legend(fontsize=7)
        axes.grid(axis="y", alpha=0.3)
    return figure


def _names(panel: Panel) -> list[str]:
    return [*(series.name for series in panel.series), *panel.levels]


def _lines(axes: Axes, panel: Panel, colours: Mapping[str, str]) -> None:
    if all(float(place).is_integer() for series in panel.series for place in series.x):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    for series in panel.series:
        margins = [margin or 0.0 for margin in series.margin]
        axes.errorbar(
            np.asarray(series.x), series.y, margins, label=series.name, color=colours[series.name], marker=".",
            capsize=2, linewidth=1.2, elinewidth=0.6,
        )  # fmt: skip


def _bars(axes: Axes, panel: Panel, colours: Mapping[str, str]) -> None:
    groups = list(dict.fromkeys(name for series in panel.series for name in series.x))
    width = 0.8 / len(panel.series)
    for number, series in enumerate(panel.series):
        at = [groups.index(name) + (number - (len(panel.series) - 1) / 2) * width for name in series.x]
        margins = [margin or 0.0 for margin in series.margin]
        axes.bar(at, series.y, width, yerr=margins, label=series.name, color=colours[series.name], capsize=2)
    axes.set_xticks(range(len(groups)), [str(group) for group in groups])
