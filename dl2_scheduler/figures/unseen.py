"""Figure 15: jobs of types that come only later."""

from dl2_scheduler.figures.draw import Panel, Picture, Row
from dl2_scheduler.figures.lab import Lab
from dl2_scheduler.figures.progress import curve, curve_rows

_TYPES = ("resnet-50", "vgg-16", "resnext-110", "inception-bn", "seq2seq", "cnn-text-classification", "dssm", "wlm")
"""In the order of DL2's table 1."""


def unseen_types(lab: Lab) -> Picture:
    """Draw completion time by update, all types in the validation (DL2, figure 15).

    Four types at first, in the imitation too; two more after a third of the updates, two after two thirds. "ideal"
    has all from the start.
    """
    panels: list[Panel] = []
    rows: list[Row] = []
    for learner, recipe in (("ours", lab.ours), ("paper's", lab.paper)):
        updates = recipe().updates
        stages = ((0, _TYPES[:4]), (updates // 3, _TYPES[:6]), (2 * updates // 3, _TYPES))
        curves = {
            "ideal": lab.trained(recipe()).curve,
            "types come later": lab.trained(recipe(stages=stages)).curve,
        }
        lines = [curve(name, judged) for name, judged in curves.items()]
        label = f"updates; new types at {stages[1][0]} and {stages[2][0]}"
        panels.append(Panel(label, lines, learner))
        for name, judged in curves.items():
            rows += curve_rows(judged, learner=learner, curve=name)
    return Picture(panels, rows)
