"""This module draws the graph scheduler's agents beside rules and a planner: figures 7 to 9, and one of our own."""

from collections.abc import Mapping

from dl2_scheduler.figures.draw import Panel, Picture, Series
from dl2_scheduler.figures.placement.graph_lab import GraphLab
from dl2_scheduler.sim.arrivals import Pattern
from dl2_scheduler.sim.placed.formula.clusters import NetworkType, ServerType
from dl2_scheduler.sim.placed.scenario import Scenario

_INTERVALS = "mean completion time, intervals of 30 minutes"
OVERSUBSCRIPTIONS = (1.0, 2.0, 4.0, 8.0)


def by_pattern(lab: GraphLab) -> Picture:
    """Return figure 7: three patterns of arrivals."""
    return _bars(lab, {pattern.value: Scenario.graph(small=True, pattern=pattern) for pattern in Pattern})


def by_servers(lab: GraphLab) -> Picture:
    """Return figure 8: four types of servers."""
    return _bars(lab, {f"servers {each}": Scenario.graph(servers=each, small=True) for each in ServerType})


def by_network(lab: GraphLab) -> Picture:
    """Return figure 9: three networks."""
    return _bars(lab, {each.value: Scenario.graph(each, small=True) for each in NetworkType})


def by_oversubscription(lab: GraphLab) -> Picture:
    """Return by how much the agents lie under others where links above the racks are narrower and narrower."""
    found = {factor: lab.compared(Scenario.graph(small=True, oversubscription=factor)) for factor in OVERSUBSCRIPTIONS}
    rows = [
        {"oversubscription": factor, "policy": bar.policy, "under_percent": bar.gain.mean, "margin": bar.gain.margin}
        for factor, bars in found.items()
        for bar in bars[1:]
    ]
    series = []
    for number, bar in enumerate(found[OVERSUBSCRIPTIONS[0]][1:], 1):
        gains = [bars[number].gain for bars in found.values()]
        series.append(
            Series(bar.policy, OVERSUBSCRIPTIONS, [gain.mean for gain in gains], [gain.margin for gain in gains])
        )
    panel = Panel("oversubscription", series, y_label="agents lie under it by, %", width=1.6, from_zero=False)
    return Picture([panel], rows)


def _bars(lab: GraphLab, scenarios: Mapping[str, Scenario]) -> Picture:
    found = {name: lab.compared(scenario) for name, scenario in scenarios.items()}
    rows = [
        {
            "setting": name,
            "policy": bar.policy,
            "intervals": bar.intervals.mean,
            "intervals_margin": bar.intervals.margin,
            "agents_under_percent": bar.gain.mean,
            "margin": bar.gain.margin,
        }
        for name, bars in found.items()
        for bar in bars
    ]
    series = []
    for number, bar in enumerate(next(iter(found.values()))):
        each = [bars[number].intervals for bars in found.values()]
        series.append(Series(bar.policy, list(found), [one.mean for one in each], [one.margin for one in each]))
    return Picture([Panel("", series, y_label=_INTERVALS, width=2.2)], rows)
