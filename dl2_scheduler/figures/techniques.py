"""Table 2 and section 6.5 are about the paper's learner with parts of it left out or changed."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from dl2_scheduler.figures.draw import Panel, Picture, Row, Series
from dl2_scheduler.figures.generality import of_times
from dl2_scheduler.figures.lab import Lab, Times, gain
from dl2_scheduler.figures.progress import curve, curve_rows
from dl2_scheduler.learning.paper.bootstrap import PaperNetwork
from dl2_scheduler.learning.paper.imitation import ImitationLoss
from dl2_scheduler.learning.paper.settings import PaperSettings
from dl2_scheduler.sim.metrics import estimate


def left_out(lab: Lab) -> Picture:
    """Draw by how many percent the paper's learner is slower without each of its techniques (DL2, table 2).

    Each seed is another run of learning; the interval is over seeds. Jobs begin a slot with nothing, as in the paper's
    text: with the published code's minimum of one worker and one server no poor state is left to explore from.
    """
    whole, network = lab.scale.paper, PaperNetwork(minimum=False)
    without: Mapping[str, PaperSettings] = {
        "nothing": whole,
        "actor-critic": replace(whole, value_network=False),
        "exploration": replace(whole, epsilon=0.0),
        "experience replay": replace(whole, replay=0),
    }
    seeds = range(lab.seed, lab.seed + lab.scale.seeds)
    reached = {
        (name, seed): float(np.mean(lab.times(lab.trained(lab.paper(network=network, settings=settings, seed=seed)))))
        for name, settings in without.items()
        for seed in seeds
    }
    rows: list[Row] = []
    for name in without:
        slower = estimate([100 * (reached[name, seed] / reached["nothing", seed] - 1) for seed in seeds])
        jct = estimate([reached[name, seed] for seed in seeds])
        rows.append(
            {
                "without": name,
                "jct_slots": jct.mean,
                "jct_margin": jct.margin,
                "slowdown_percent": slower.mean,
                "slowdown_margin": slower.margin,
                "seeds": len(seeds),
            }
        )
    named = [row["without"] for row in rows]
    series = Series("", named, [row["slowdown_percent"] for row in rows], [row["slowdown_margin"] for row in rows])
    return Picture([Panel("left out", [series], y_label="slowdown, percent", width=1.3, from_zero=False)], rows)


def losses(lab: Lab) -> Picture:
    """Mean completion time by the loss with which the paper's network imitates DRF (DL2, section 6.5)."""
    drf = lab.times("drf")
    bars: dict[str, dict[str, Times]] = {"supervised only": {}, "supervised, then online": {}}
    for loss in ImitationLoss:
        recipe = lab.paper(network=PaperNetwork(loss=loss))
        bars["supervised only"][loss.value] = lab.times(lab.imitated(recipe))
        bars["supervised, then online"][loss.value] = lab.times(lab.trained(recipe))
    rows: list[Row] = [
        {
            "loss": loss,
            "policy": policy,
            "jct_slots": estimate(times).mean,
            "margin": estimate(times).margin,
            "over_drf_percent": -gain(times, drf),
        }
        for policy, by_loss in bars.items()
        for loss, times in by_loss.items()
    ]
    series = [of_times(policy, by_loss) for policy, by_loss in bars.items()]
    return Picture([Panel("loss", series, levels={"drf": estimate(drf).mean}, width=1.3)], rows)


def rewards(lab: Lab) -> Picture:
    """Draw completion time by update, with an action's reward all jobs' progress or its own (DL2, section 6.5)."""
    runs = {
        "all jobs' progress": lab.trained(lab.paper()),
        "the job's own progress": lab.trained(lab.paper(settings=replace(lab.scale.paper, job_reward=True))),
    }
    rows: list[Row] = []
    for name, run in runs.items():
        rows += [{"judged": "while learning", **row} for row in curve_rows(run.curve, reward=name)]
        rows += [{"judged": "in the end", **row} for row in curve_rows({max(run.curve): lab.times(run)}, reward=name)]
    lines = [curve(name, run.curve) for name, run in runs.items()]
    level = {"drf": estimate(lab.times("drf")[: lab.scale.validation]).mean}
    return Picture([Panel("updates", lines, levels=level)], rows)
