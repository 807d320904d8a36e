"""Figures 17 and 18: how many jobs a network sees at once, how many clusters learn one policy."""

from dataclasses import replace

from dl2_scheduler.figures.draw import Panel, Picture, Row
from dl2_scheduler.figures.generality import of_times
from dl2_scheduler.figures.lab import Lab, gain
from dl2_scheduler.figures.progress import curve, curve_rows
from dl2_scheduler.learning.paper.bootstrap import PaperNetwork
from dl2_scheduler.sim.metrics import estimate


def concurrent_jobs(lab: Lab) -> Picture:
    """Mean completion time by J, the jobs that the paper's network sees at once (DL2, figure 17).

    More jobs than J are decided in batches. Ours scores each job by itself: it has no J.
    """
    drf, ours = lab.times("drf"), lab.times(lab.trained(lab.ours()))
    supervised, trained = {}, {}
    for places in lab.scale.places:
        recipe = lab.paper(network=PaperNetwork(places=places))
        supervised[float(places)] = lab.times(lab.imitated(recipe))
        trained[float(places)] = lab.times(lab.trained(recipe))
    parts = {"supervised only, paper's": supervised, "supervised, then online, paper's": trained}
    rows: list[Row] = [
        {
            "policy": policy,
            "places": int(places) or None,
            "jct_slots": estimate(times).mean,
            "margin": estimate(times).margin,
            "under_drf_percent": gain(times, drf),
        }
        for policy, by_places in {**parts, "ours": {0.0: ours}, "drf": {0.0: drf}}.items()
        for places, times in by_places.items()
    ]
    levels = {"ours": estimate(ours).mean, "drf": estimate(drf).mean}
    series = [of_times(policy, by_places) for policy, by_places in parts.items()]
    return Picture([Panel("J, jobs that the network sees at once", series, levels=levels)], rows)


def clusters_together(lab: Lab) -> Picture:
    """Mean completion time by the number of clusters that learn one policy (DL2, figure 18).

    The paper's learner makes one update a slot, by the cluster whose turn it is: with k clusters each has a k-th of the
    slots. Ours makes one update of an episode in each cluster.
    """
    scale, finals, curves = lab.scale, {}, []
    rows: list[Row] = []
    for learner in ("ours", "paper's"):
        final, lines = {}, []
        for count in scale.together:
            ours = lab.ours(settings=replace(scale.ours, lanes=count))
            recipe = ours if learner == "ours" else lab.paper(settings=replace(scale.paper, agents=count))
            run = lab.trained(recipe)
            final[float(count)] = lab.times(run)
            lines.append(curve(f"{count} together", run.curve))
            said = {"learner": learner, "clusters": count}
            rows += [{"judged": "while learning", **row} for row in curve_rows(run.curve, **said)]
            last = {recipe.updates: final[float(count)]}
            rows += [{"judged": "in the end", **row} for row in curve_rows(last, **said)]
        finals[learner] = final
        curves.append(Panel("updates", lines, f"{learner}: while learning"))
    ends = [of_times(learner, final) for learner, final in finals.items()]
    whole = Panel("clusters that learn one policy", ends, "in the end", levels={"drf": estimate(lab.times("drf")).mean})
    return Picture([whole, *curves], rows)
