"""Figures 4a to 4c of Chic: completion times, beside rules and bounds that the paper does not have."""

from collections.abc import Mapping, Sequence

import numpy as np

from dl2_scheduler.figures.chic.lab import BOUND, ChicLab
from dl2_scheduler.figures.chic.scale import CHIC, EVENT, LEARNERS, OPTIMUS, PAIR, ROLL_OUT, RULES
from dl2_scheduler.figures.draw import Panel, Picture, Row, Series
from dl2_scheduler.policies.chic.network import Floats
from dl2_scheduler.sim.metrics import estimate

ACT = "mean completion time, s"
RATE = "jobs an hour"

_SHOWN = (OPTIMUS, EVENT, ROLL_OUT, BOUND, *LEARNERS)
_PARTS = tuple(range(0, 101, 2))


def gain_of(times: Floats, baseline: Floats) -> tuple[float, float]:
    """Return by how many percent completion times are under a baseline's, and half its 95% interval, paired.

    Args:
        times: (sequences, jobs).
        baseline: on the same sequences, (sequences, jobs).
    """
    mean = float(baseline.mean())
    found = estimate((100 * (baseline.mean(axis=1) - times.mean(axis=1)) / mean).tolist())
    return found.mean, found.margin or 0.0


def median_times(lab: ChicLab, name: str, rate: float, seeds: int) -> Floats:
    """Return the completion times of the seed that is the median of some, by its mean; the lower one of two.

    Args:
        lab: where runs come from.
        name: of the learner.
        rate: jobs an hour.
        seeds: how many.
    """
    found = [
        lab.times(lab.learnt(lab.scale.learner(name), rate, lab.seed + number).run, rate) for number in range(seeds)
    ]
    return sorted(found, key=lambda times: float(times.mean()))[(seeds - 1) // 2]


def _rows(rate: float, times: Mapping[str, Floats]) -> list[Row]:
    rows: list[Row] = []
    for name, some in times.items():
        under, margin = gain_of(some, times[OPTIMUS])
        event, event_margin = gain_of(some, times[EVENT])
        rows.append(
            {
                "rate": rate,
                "policy": name,
                "act_seconds": float(some.mean()),
                "under_optimus_600_percent": under,
                "margin": margin,
                "under_optimus_events_percent": event,
                "events_margin": event_margin,
            }
        )
    return rows


def _by_rate(name: str, rows: Sequence[Row], column: str, margin: str = "") -> Series:
    own = [row for row in rows if row["policy"] == name]
    margins = [row[margin] if margin else None for row in own]
    return Series(name, [row["rate"] for row in own], [row[column] for row in own], margins)


def _picture(rows: Sequence[Row]) -> Picture:
    names = list(dict.fromkeys(row["policy"] for row in rows))
    shown = [name for name in _SHOWN if name in names] or names
    acts = [_by_rate(name, rows, "act_seconds") for name in shown]
    gains = [_by_rate(name, rows, "under_optimus_600_percent", "margin") for name in shown if name != OPTIMUS]
    return Picture(
        [
            Panel(RATE, acts, y_label=ACT, width=1.2, from_zero=False),
            Panel(RATE, gains, y_label="under Optimus at 600 s, percent", width=1.2, from_zero=False),
        ],
        rows,
    )


def headroom(lab: ChicLab) -> Picture:
    """Draw what rules that know the speeds leave to be learnt, and the bound that no scheduler passes."""
    rows: list[Row] = []
    for rate in lab.scale.rates:
        rows += _rows(rate, {name: lab.times(name, rate) for name in (*RULES, BOUND)})
    return _picture(rows)


def by_rate(lab: ChicLab) -> Picture:
    """Draw mean completion times by arrival rate (figure 4a); of the paper's learner and the mended one at one."""
    rows: list[Row] = []
    for rate in lab.scale.rates:
        times = {name: lab.times(name, rate) for name in (*RULES, BOUND)}
        for name in LEARNERS:
            if name in (CHIC, PAIR) or rate == lab.scale.usual:
                times[name] = lab.times(lab.learnt(lab.scale.learner(name), rate, lab.seed).run, rate)
        rows += _rows(rate, times)
    return _picture(rows)


def distribution(lab: ChicLab) -> Picture:
    """Draw how completion times are distributed (figure 4b)."""
    rate = lab.scale.usual
    times = {name: lab.times(name, rate) for name in (OPTIMUS, EVENT, ROLL_OUT)}
    for name in (CHIC, PAIR):
        times[name] = lab.times(lab.learnt(lab.scale.learner(name), rate, lab.seed).run, rate)
    values = {name: np.percentile(some, _PARTS) for name, some in times.items()}
    rows: list[Row] = [
        {"policy": name, "percent_of_jobs": part, "seconds": float(value)}
        for name, some in values.items()
        for part, value in zip(_PARTS, some, strict=True)
    ]
    series = [Series(name, some.tolist(), list(_PARTS), [None] * len(_PARTS)) for name, some in values.items()]
    return Picture(
        [Panel("completion time, s", series, y_label="jobs that took at most so long, percent", width=1.4)], rows
    )


def elsewhere(lab: ChicLab) -> Picture:
    """Draw what a policy that learnt at the usual rate does at others, beside one that learnt there (figure 4c)."""
    rows: list[Row] = []
    for rate in lab.scale.rates:
        times = {OPTIMUS: lab.times(OPTIMUS, rate), EVENT: lab.times(EVENT, rate)}
        for name in (CHIC, PAIR):
            settings = lab.scale.learner(name)
            times[name] = lab.times(lab.learnt(settings, rate, lab.seed).run, rate)
            usual = lab.learnt(settings, lab.scale.usual, lab.seed).run
            times[f"{name} of {lab.scale.usual:g}"] = lab.times(usual, rate)
        rows += _rows(rate, times)
    names = list(dict.fromkeys(row["policy"] for row in rows))
    series = [_by_rate(name, rows, "act_seconds") for name in names]
    return Picture([Panel(RATE, series, y_label=ACT, width=1.4, from_zero=False)], rows)
