"""This module draws what sharing servers costs in the formula world: the graph scheduler's figures 1, 2, 3, table III.

The world is scaled to one number of the paper's figure 1 for pairs of jobs on a server (see `sim.placed.formula`); all
else is what follows from its formulas with drawn coefficients.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.hardware.machines import GRAPH, HARMONY, Floats, Machines
from dl2_scheduler.cluster.hardware.profiles import PUBLISHED
from dl2_scheduler.cluster.hardware.topologies.flat import flat_of
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.figures.draw import Panel, Picture, Series
from dl2_scheduler.policies.placement.balance import BestFit, LoadBalancing
from dl2_scheduler.policies.placement.greedy_fill import GreedyFill, GroupRule
from dl2_scheduler.policies.rules.fixed_demand import FixedDemand
from dl2_scheduler.sim.placed.calibrate import PlacedJob, placed
from dl2_scheduler.sim.placed.cluster import PlacedCluster
from dl2_scheduler.sim.placed.formula.table_fits import fit_errors
from dl2_scheduler.sim.placed.formula.world import Formula
from dl2_scheduler.sim.simulator import steps

MODELS = sorted(PUBLISHED)
_SERVERS = 4  # that eight jobs share in figures 1 and 3
_MOST_CTC = 4
PAPER_ERRORS = {"linear": 24.6, "quadratic": 22.9, "own form": 13.1, "without PCIe": 27.5, "without CPU": 36.3}
"""Table III, in percent."""
_LOSS = "speed that is lost, %"
_SPEED = "speed over that alone"


def packed_and_beside() -> Picture:
    """Return figure 1: what eight jobs lose that best fit packs onto four servers, and speeds beside CTC jobs."""
    losses, world = _losses(BestFit()), _world(Machines.alike(HARMONY, 1))
    panel = _loss_panel("best fit", losses, 30.0, "eight jobs, four servers")
    lines = [_beside_ctc(world, model) for model in ("resnet-50", "vgg-16")]
    beside = Panel("CTC jobs on the same server", lines, y_label=_SPEED)
    rows = [{"what": "lost_percent", "model": model, "ctc_jobs": 0, "value": loss} for model, loss in losses.items()]
    rows += [
        {"what": "speed", "model": line.name, "ctc_jobs": count, "value": float(speed)}
        for line in lines
        for count, speed in enumerate(line.y)
    ]
    return Picture([panel, beside], rows)


def same_or_other_processor() -> Picture:
    """Return figure 2b: the speed of two jobs on one server, on the same processor and on different ones."""
    world = _world(Machines.alike(GRAPH, 1))
    rows: list[dict[str, Any]] = []
    for one, other in (("resnet-50", "vgg-16"), ("resnext-110", "wlm"), ("inception-bn", "seq2seq")):
        alone = [_rates(world, [(model, [0], [0])])[0] for model in (one, other)]
        for way, group in (("same processor", 0), ("other processor", 1)):
            speeds = _rates(world, [(one, [0], [0]), (other, [group], [group])]) / alone
            rows += [
                {"pair": f"{one} + {other}", "way": way, "job": model, "speed": float(speed)}
                for model, speed in zip((one, other), speeds, strict=True)
            ]
    names = [f"{row['job']}\n({row['pair']})" for row in rows if row["way"] == "same processor"]
    ways = ("same processor", "other processor")
    series = [_series(way, names, [row["speed"] for row in rows if row["way"] == way]) for way in ways]
    return Picture([Panel("job (beside the other of its pair)", series, y_label=_SPEED, width=2.4)], rows)


def balanced() -> Picture:
    """Return figure 3a: what eight jobs lose whose tasks load balancing spreads over four servers."""
    losses = _losses(LoadBalancing())
    rows = [{"model": model, "lost_percent": loss} for model, loss in losses.items()]
    return Picture([_loss_panel("load balancing", losses, 37.0, "eight jobs, four servers")], rows)


def fitted_forms() -> Picture:
    """Return table III: how far fitted models of interference miss 480 samples."""
    found = fit_errors(_world(Machines.alike(GRAPH, 1)).interference)
    here = {name: 100 * error for name, error in found.items()}
    series = [_series("here", list(here), list(here.values()))]
    series.append(_series("the paper", list(here), [PAPER_ERRORS[name] for name in here]))
    rows = [{"model": name, "error_percent": error, "paper": PAPER_ERRORS[name]} for name, error in here.items()]
    return Picture([Panel("fitted model", series, y_label="error, % of the mean slowdown", width=1.6)], rows)


def _world(machines: Machines) -> Formula:
    return Formula.drawn(machines, flat_of(machines), PUBLISHED, 0)


def _rates(world: Formula, jobs: Sequence[PlacedJob]) -> Floats:
    return world.rates(placed(MODELS, jobs))


def _beside_ctc(world: Formula, model: str) -> Series:
    speeds = [_rates(world, [(model, [0], [0]), *[("ctc", [0], [0])] * count])[0] for count in range(_MOST_CTC)]
    found = (np.array(speeds) / speeds[0]).tolist()
    return Series(model, range(_MOST_CTC), found, [None] * _MOST_CTC)


def _losses(rule: GroupRule) -> dict[str, float]:
    """Return the part of its speed that each of eight jobs of one worker and one server loses, in percent.

    Args:
        rule: by which they are placed on four of Harmony's servers, as the paper's are.
    """
    machines = Machines.alike(HARMONY, _SERVERS)
    world, one_server = _world(machines), _world(Machines.alike(HARMONY, 1))
    profiles = [PUBLISHED[model] for model in MODELS]
    jobs = [
        Job(number, 0.0, model, 1e6, 1.0, profile.worker, profile.server, 1, 1)
        for number, (model, profile) in enumerate(zip(MODELS, profiles, strict=True))
    ]
    cluster = PlacedCluster(jobs, machines, world.topology, PUBLISHED, world, GreedyFill(rule), 1.0)
    next(iter(steps(cluster, FixedDemand(), NodeRule.SPREAD)))
    alone = np.array([_rates(one_server, [(model, [0], [0])])[0] for model in MODELS])
    return dict(zip(MODELS, (100 * (1 - cluster.rates / alone)).tolist(), strict=True))


def _loss_panel(name: str, losses: dict[str, float], paper: float, title: str) -> Panel:
    levels = {"mean": float(np.mean(list(losses.values()))), "mean in the paper": paper}
    series = [_series(name, list(losses), list(losses.values()))]
    return Panel("model", series, title=title, y_label=_LOSS, levels=levels, width=2.0)


def _series(name: str, x: list[str], y: list[float]) -> Series:
    return Series(name, x, y, [None] * len(y))
