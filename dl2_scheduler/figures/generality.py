"""Figures 13, 14 and 16: other speeds, wrong estimates, other teachers."""

from collections.abc import Mapping, Sequence
from typing import Any

from dl2_scheduler.figures.draw import Panel, Picture, Row, Series
from dl2_scheduler.figures.lab import Lab, Times, TrainedPolicy, gain
from dl2_scheduler.sim.metrics import estimate


def varied_speeds(lab: Lab) -> Picture:
    """Mean completion time by how far jobs' speeds deviate from their models' (DL2, figure 13).

    The policies have learnt without deviations; Optimus fits speeds while it runs.
    """
    return _swept(lab, ("drf", "optimus"), "variation", lab.scale.variations, "deviation of jobs' speeds, percent")


def wrong_estimates(lab: Lab) -> Picture:
    """Mean completion time by how far owners err about epochs (DL2, figure 14); DRF does not look at epochs."""
    return _swept(lab, ("drf", "srtf"), "estimate_error", lab.scale.errors, "error of the estimated epochs, percent")


def _swept(lab: Lab, baselines: Sequence[str], name: str, parts: Sequence[float], label: str) -> Picture:
    policies: Mapping[str, str | TrainedPolicy] = {
        **{name: name for name in baselines},
        "DL2": lab.trained(lab.ours()),
        "DL2, paper's": lab.trained(lab.paper()),
    }
    series: list[Series] = []
    rows: list[Row] = []
    drf = {part: lab.times("drf", 0, {name: part}) for part in parts}
    for policy, who in policies.items():
        times = {part: lab.times(who, 0, {name: part}) for part in parts}
        series.append(of_times(policy, {100 * part: of_part for part, of_part in times.items()}))
        for part in parts:
            found = estimate(times[part])
            rows.append(
                {
                    "policy": policy,
                    f"{name}_percent": 100 * part,
                    "jct_slots": found.mean,
                    "margin": found.margin,
                    "under_drf_percent": gain(times[part], drf[part]),
                    "change_percent": -gain(times[part], times[parts[0]]),
                }
            )
    return Picture([Panel(label, series)], rows)


def of_times(name: str, times: Mapping[Any, Times]) -> Series:
    """Return the means of what sequences took, with intervals.

    Args:
        name: for the legend.
        times: by place on the axis, or by name of a group of bars.
    """
    found = [estimate(each) for each in times.values()]
    return Series(name, list(times), [each.mean for each in found], [each.margin for each in found])


def teachers(lab: Lab) -> Picture:
    """Mean completion time with other schedulers imitated at first: theirs, and the policy's after (DL2, figure 16)."""
    names = ("drf", "fifo", "srtf")
    bars: dict[str, dict[str, Times]] = {}
    for teacher in names:
        found = {"the teacher": lab.times(teacher)}
        for learner, recipe in (("", lab.ours(teacher=teacher)), (", paper's", lab.paper(teacher=teacher))):
            found[f"supervised only{learner}"] = lab.times(lab.imitated(recipe))
            found[f"supervised, then online{learner}"] = lab.times(lab.trained(recipe))
        bars[teacher] = found
    rows: list[Row] = [
        {
            "teacher": teacher,
            "policy": policy,
            "jct_slots": estimate(times).mean,
            "margin": estimate(times).margin,
            "under_teacher_percent": gain(times, found["the teacher"]),
        }
        for teacher, found in bars.items()
        for policy, times in found.items()
    ]
    series = [of_times(policy, {teacher: bars[teacher][policy] for teacher in names}) for policy in bars[names[0]]]
    return Picture([Panel("teacher", series, width=1.8)], rows)
