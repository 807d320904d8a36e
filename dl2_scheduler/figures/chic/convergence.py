"""Figures 6 and 7 of Chic: what becomes of learning by iterations, and what W and I do to it."""

from collections.abc import Sequence
from dataclasses import replace

from dl2_scheduler.figures.chic.completion import ACT, RATE
from dl2_scheduler.figures.chic.lab import ChicLab
from dl2_scheduler.figures.chic.scale import EVENT, OPTIMUS
from dl2_scheduler.figures.draw import Panel, Picture, Row, Series
from dl2_scheduler.sim.metrics import estimate

_WAYS = ("paper's", "mended")


def returns(lab: ChicLab, form: str) -> Picture:
    """Draw the paper's learner's bound and mean return by iteration (figures 6a and 6c).

    Args:
        lab: where runs come from.
        form: Chic or Chic-Pair.
    """
    run = lab.learnt(lab.scale.learner(f"{form}, paper's"), lab.scale.usual, lab.seed).run
    curve = run.curve[1:]
    rows: list[Row] = [
        {"iteration": each.number, "bound": each.bound, "mean_return": each.mean_return, "decisions": each.decisions}
        for each in curve
    ]
    at, none = [float(each.number) for each in curve], [None] * len(curve)
    lines = [
        Series("bound", at, [each.bound for each in curve], none),
        Series("mean of all episodes", at, [each.mean_return for each in curve], none),
    ]
    return Picture([Panel("iterations", lines, y_label="cumulative reward", width=1.3, from_zero=False)], rows)


def judged(lab: ChicLab, form: str) -> Picture:
    """Draw completion time on the validation sequences by iteration, of both learners (figures 6b and 6d).

    Args:
        lab: where runs come from.
        form: Chic or Chic-Pair.
    """
    rate = lab.scale.usual
    rows: list[Row] = []
    lines = []
    for way in _WAYS:
        run = lab.learnt(lab.scale.learner(f"{form}, {way}"), rate, lab.seed).run
        known = [(each.number, each.act) for each in run.curve if each.act is not None]
        rows += [{"learner": way, "iteration": number, "act_seconds": act} for number, act in known]
        at, acts = [float(number) for number, _ in known], [act for _, act in known]
        lines.append(Series(way, at, acts, [None] * len(at)))
    levels = {name: float(lab.times(name, rate).mean()) for name in (OPTIMUS, EVENT)}
    return Picture([Panel("iterations", lines, y_label=ACT, levels=levels, width=1.3, from_zero=False)], rows)


def longer_episodes(lab: ChicLab) -> Picture:
    """Draw completion time by W, the jobs of a training episode, of the mended learners (figure 7a)."""
    rate = lab.scale.usual
    rows: list[Row] = []
    for form in ("Chic", "Chic-Pair"):
        for jobs in (lab.scale.jobs, 2 * lab.scale.jobs):
            learnt = lab.learnt(lab.scale.learner(f"{form}, mended"), rate, lab.seed, jobs)
            found = estimate(lab.times(learnt.run, rate).mean(axis=1).tolist())
            rows.append({"learner": form, "W": str(jobs), "act_seconds": found.mean, "margin": found.margin})
    return Picture([Panel("W, jobs of an episode", _bars(rows, "W"), y_label=ACT, width=1.2)], rows)


def visible_jobs(lab: ChicLab) -> Picture:
    """Draw completion time of Chic-Pair by I, the jobs that it sees, mended and taught (figure 7b)."""
    rows: list[Row] = []
    for rate in (min(lab.scale.rates), max(lab.scale.rates)):
        for name in ("Chic-Pair, mended", "Chic-Pair"):
            for visible in (2, 3, 4):
                settings = replace(lab.scale.learner(name), visible=visible)
                found = lab.times(lab.learnt(settings, rate, lab.seed).run, rate)
                act = estimate(found.mean(axis=1).tolist())
                label = "mended" if "mended" in name else "taught"
                row = {"learner": f"{label}, I = {visible}", "rate": f"{rate:g}", "act_seconds": act.mean}
                rows.append({**row, "margin": act.margin})
    return Picture([Panel(RATE, _bars(rows, "rate"), y_label=ACT, width=1.6)], rows)


def _bars(rows: Sequence[Row], group: str) -> list[Series]:
    return [
        Series(
            name,
            [row[group] for row in rows if row["learner"] == name],
            [row["act_seconds"] for row in rows if row["learner"] == name],
            [row["margin"] for row in rows if row["learner"] == name],
        )
        for name in dict.fromkeys(row["learner"] for row in rows)
    ]
