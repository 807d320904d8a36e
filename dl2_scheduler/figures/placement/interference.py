"""This module draws what sharing servers costs in the mechanistic world: Harmony's figures 1, 2, 4 and 5."""

from dl2_scheduler.cluster.hardware.profiles import HARMONY_MODELS, PUBLISHED
from dl2_scheduler.figures.draw import Panel, Picture, Series
from dl2_scheduler.sim.placed.calibrate import Anchors, anchors

_LOSS = "speed that is lost, %"
_SPEED = "speed over that alone"


def harmony_anchors() -> Anchors:
    """Return the world's answers for Harmony's six models."""
    return anchors({model: PUBLISHED[model] for model in HARMONY_MODELS})


def packed_jobs() -> Picture:
    """Return figure 1: what each of six jobs loses, two to a server, on the average of all pairings."""
    found = harmony_anchors()
    losses = [100 * found.losses[model] for model in HARMONY_MODELS]
    levels = {"mean of the six": 100 * found.mean_loss, "mean in the paper": 33.0}
    panel = Panel(
        "model", [_series("two to a server", HARMONY_MODELS, losses)], y_label=_LOSS, levels=levels, width=1.6
    )
    rows = [{"model": model, "lost_percent": loss} for model, loss in zip(HARMONY_MODELS, losses, strict=True)]
    return Picture([panel], rows)


def pairs() -> Picture:
    """Return figure 2: what both jobs of each pair on one server lose together."""
    found = {pair: 100 * loss for pair, loss in sorted(harmony_anchors().pairs.items(), key=lambda item: item[1])}
    names = [f"{a}\n{b}" for a, b in found]
    panel = Panel("pair", [_series("sum of both", names, list(found.values()))], y_label=_LOSS, width=4.0)
    return Picture([panel], [{"one": a, "other": b, "lost_percent": loss} for (a, b), loss in found.items()])


def two_policies() -> Picture:
    """Return figure 4: CTC and another job on two servers, packed on one of them or spread over both."""
    found = harmony_anchors()
    panels, rows = [], []
    for model in found.packed:
        ways = {"packed": found.packed[model], "spread": found.spread[model], "alone": (1.0, 1.0)}
        panels.append(
            Panel("job", [_series(way, ["ctc", model], speeds) for way, speeds in ways.items()], y_label=_SPEED)
        )
        rows += [{"with": model, "way": way, "ctc": a, "other": b} for way, (a, b) in ways.items()]
    return Picture(panels, rows)


def beside_ctc() -> Picture:
    """Return figure 5: the speed of ResNeXt and of VGG beside more and more CTC jobs."""
    found = harmony_anchors().beside_ctc
    lines = [Series(model, range(len(speeds)), speeds, [None] * len(speeds)) for model, speeds in found.items()]
    rows = [
        {"model": model, "ctc_jobs": count, "speed": speed}
        for model, speeds in found.items()
        for count, speed in enumerate(speeds)
    ]
    return Picture([Panel("CTC jobs on the same server", lines, y_label=_SPEED)], rows)


def _series(name: str, x: "tuple[str, ...] | list[str]", y: "list[float] | tuple[float, ...]") -> Series:
    return Series(name, x, y, [None] * len(y))
