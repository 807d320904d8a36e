"""This module draws what benchmarks have measured about Harmony: learning takes longer than a figure may."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.figures.draw import Panel, Picture, Series
from dl2_scheduler.figures.placement.contenders import SHORTEST

BENCHMARKS = Path("build/bench")
"""Where `make bench-NAME` writes."""
_OVER = "over local search on fitted speeds, %"
_PAPER_TABLE = {"full": 4.3, "no value net": 6.4, "no exploration": 7.2, "no replay": 5.9}
"""Mean completion times of Harmony's table II, in intervals."""
_PATTERNS = "arrivals and jobs an interval"


def measured(name: str) -> list[Mapping[str, Any]]:
    """Return the rows of a benchmark.

    Raises:
        BadInput: it has not been run here.
    """
    path = BENCHMARKS / f"{name}.json"
    try:
        found: list[Mapping[str, Any]] = json.loads(path.read_text())["rows"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(f"no measurements in {path}: {error}: make them by `make bench-{name}`") from error
    return found


def three_arrivals() -> Picture:
    """Return figure 8: completion times at three patterns of arrivals, each rule in its better order."""
    best: dict[str, dict[str, float]] = {}
    for row in measured("placement_harmony"):
        name, seed, _ = row["policy"].partition(", seed ")
        by, intervals = best.setdefault(name.removesuffix(SHORTEST), {}), row["intervals"]
        if not seed:
            by[row["arrivals"]] = min(intervals, by.get(row["arrivals"], intervals))
        elif row[f"median {name} under it %"] == 0:
            by[row["arrivals"]] = intervals
    rows = [{"policy": name, "arrivals": x, "intervals": y} for name, by in best.items() for x, y in by.items()]
    bars = [_bars(name, list(by), list(by.values())) for name, by in best.items()]
    return Picture([Panel(_PATTERNS, bars, y_label="mean completion time, intervals", width=2.4)], rows)


def errors_by_samples() -> Picture:
    """Return figure 9a: errors of models of speeds by the number of samples that they were fitted to."""
    rows = [row for row in measured("placement_reward") if row["fitted to"].endswith(" samples")]
    lines: dict[str, tuple[list[float], list[float]]] = {}
    for row in rows:
        x, y = lines.setdefault(row["by"], ([], []))
        x.append(float(row["fitted to"].removesuffix(" samples").replace(",", "")))
        y.append(row["error %"])
    series = [Series(name, x, y, [None] * len(y)) for name, (x, y) in lines.items()]
    panel = Panel("samples", series, y_label="error, %", levels={"Harmony's paper": 9.8})
    return Picture([panel], [{"by": row["by"], "fitted_to": row["fitted to"], "error": row["error %"]} for row in rows])


def errors_by_model() -> Picture:
    """Return figure 9b: errors for each model of jobs, of what was fitted to most samples."""
    rows = [row for row in measured("placement_reward") if row["fitted to"].endswith(" samples")]
    last = [row for row in rows if row["fitted to"] == rows[-1]["fitted to"]]
    models = [name for name in last[0] if name not in ("fitted to", "by", "error %")]
    bars = [_bars(row["by"], models, [row[model] for model in models]) for row in last]
    return Picture(
        [Panel("model", bars, y_label="error, %", width=2.0)],
        [{"by": row["by"], "model": model, "error": row[model]} for row in last for model in models],
    )


def by_neurons() -> Picture:
    """Return figure 10a: Harmony's own policy by the units of its three hidden layers."""
    return _by_size(" neurons")


def by_layers() -> Picture:
    """Return figure 10b: Harmony's own policy by its hidden layers of 128 units."""
    return _by_size(" layers")


def left_out() -> Picture:
    """Return table II: Harmony's own policy without its parts; what the paper has is another cluster's."""
    found = [row for row in measured("placement_harmony_paper") if row["variant"] in _PAPER_TABLE]
    names = list(dict.fromkeys(row["variant"] for row in found))
    over = [_mean(found, name, "over %") for name in names]
    paper = [100 * (_PAPER_TABLE[name] / _PAPER_TABLE["full"] - 1) for name in names]
    rows = [
        {"variant": name, "over_percent": here, "paper_over_full_percent": there}
        for name, here, there in zip(names, over, paper, strict=True)
    ]
    panels = [
        Panel("left out", [_bars("here", names, over)], y_label=_OVER, width=1.4),
        Panel("left out", [_bars("Harmony's paper", names, paper)], y_label="over the full one, %", width=1.4),
    ]
    return Picture(panels, rows)


def _by_size(ending: str) -> Picture:
    found = [row for row in measured("placement_harmony_paper") if row["variant"].endswith(ending)]
    if not found:
        raise BadInput(f"no variants{ending} in build/bench/placement_harmony_paper.json: learn them first")
    names = list(dict.fromkeys(row["variant"] for row in found))
    sizes, over = [int(name.removesuffix(ending)) for name in names], [_mean(found, name, "over %") for name in names]
    line = Series("full", sizes, over, [None] * len(over))
    rows = [{ending.strip(): size, "over_percent": value} for size, value in zip(sizes, over, strict=True)]
    return Picture([Panel(ending.strip(), [line], y_label=_OVER)], rows)


def _mean(rows: Sequence[Mapping[str, Any]], variant: str, column: str) -> float:
    """Return the mean over the seeds of a variant.

    Args:
        rows: of all variants.
        variant: its name.
        column: which number.
    """
    values = [row[column] for row in rows if row["variant"] == variant]
    return float(sum(values) / len(values))


def _bars(name: str, x: Sequence[str], y: Sequence[float]) -> Series:
    return Series(name, x, y, [None] * len(y))
