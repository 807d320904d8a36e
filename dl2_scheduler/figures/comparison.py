"""Figure 9 compares policies side by side."""

from collections.abc import Mapping

from dl2_scheduler.figures.draw import Panel, Picture, Row, Series
from dl2_scheduler.figures.lab import Lab, TrainedPolicy, gain
from dl2_scheduler.sim.metrics import estimate


def comparison(lab: Lab) -> Picture:
    """Mean completion times on every cluster, of sequences that nobody learnt from (DL2, figure 9).

    Baselines fit speeds to what jobs report. OfflineRL is either learner on an analytical model of the speeds.
    """
    policies: Mapping[str, str | TrainedPolicy] = {
        **{name: name for name in ("drf", "tetris", "optimus", "planner")},
        "OfflineRL": lab.trained(lab.ours(analytic=True)),
        "OfflineRL, paper's": lab.trained(lab.paper(analytic=True)),
        "DL2": lab.trained(lab.ours()),
        "DL2, paper's": lab.trained(lab.paper()),
    }
    rows: list[Row] = []
    for cluster, nodes in enumerate(lab.scale.clusters):
        drf = lab.times("drf", cluster)
        for name, who in policies.items():
            times = lab.times(who, cluster)
            found, less = estimate(times), estimate([one - other for one, other in zip(times, drf, strict=True)])
            rows.append(
                {
                    "cluster": nodes,
                    "policy": name,
                    "jct_slots": found.mean,
                    "margin": found.margin,
                    "minus_drf_slots": less.mean,
                    "minus_drf_margin": less.margin,
                    "under_drf_percent": gain(times, drf),
                }
            )
    series = [
        Series(
            name,
            [row["cluster"] for row in rows if row["policy"] == name],
            [row["jct_slots"] for row in rows if row["policy"] == name],
            [row["margin"] for row in rows if row["policy"] == name],
        )
        for name in policies
    ]
    return Picture([Panel("cluster", series, width=2.2)], rows)
