"""This part of `dl2 fit` fits a model of speeds at places to what jobs measured beside each other."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import numpy as np

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.hardware.measured import MeasuredPlacement, merged
from dl2_scheduler.cluster.hardware.measured_table import MeasuredTable, read_table
from dl2_scheduler.commands.common import new_table, show
from dl2_scheduler.live.recorded_slots import RecordedSlot
from dl2_scheduler.policies.learnt.graph.agent_files import AGENTS_FILE
from dl2_scheduler.policies.learnt.placer_files import PLACER_FILE, read_named
from dl2_scheduler.policies.placement.speed_model import save_speed_model
from elastic_ps.system.terminal import say

_FOLDS = 5


def fit_places(slots: Iterable[RecordedSlot], table: Path | None, out: Path) -> None:
    """Fit the model, say how far it is off placements that it was not fitted to, and write it into a folder.

    Args:
        slots: of a live cluster.
        table: file of measured placements; None: none.
        out: the folder.

    Raises:
        BadInput: too little was measured, the file is no table, or the folder's policy knows other models.
    """
    from dl2_scheduler.learning.placement.measured_fit import (  # torch takes seconds to import
        check_enough,
        errors_of,
        fit_measured,
        folds,
        with_profiles,
    )

    given = read_table(table) if table is not None else MeasuredTable((), {}, 0)
    live, groups = [], given.groups
    for slot in slots:
        groups = max(groups, len(slot.snapshot.nodes))
        if slot.outcome is not None and slot.outcome.placed is not None:
            live.append(slot.outcome.placed)
    rows = merged([*given.placements, *live])
    check_enough(rows)
    profiles = with_profiles(rows, given.profiles)
    _check_same_models(out, profiles)
    out.mkdir(parents=True, exist_ok=True)  # what cannot be written is told before the work
    fitted = fit_measured(rows, profiles, groups)
    (part, *_) = folds(rows, _FOLDS)
    tested = fit_measured(_without(rows, part), profiles, groups)
    save_speed_model(out, fitted)
    view = new_table(type=False, placements=True, error=True)
    for model, errors in errors_of(tested, part, fitted.models).items():
        count = sum(any(job.model == model for job in row.jobs) for row in rows)
        view.add_row(model, str(count), f"{np.mean(errors):.1%}" if errors else "-")
    show(view)
    say(
        f"error: at a {_FOLDS}th of the {len(rows)} placements, of a model fitted to the others; {len(live)} slots live"
    )
    say(f"dl2 serve --placement local-search:{out}" + (f", lif-own:{out}" if fitted.interference is not None else ""))


def _check_same_models(out: Path, models: Collection[str]) -> None:
    """Refuse to write speeds beside a policy that was learnt for other models. Raises BadInput.

    Args:
        out: folder that may hold a run.
        models: of the speeds.
    """
    for file in (out / PLACER_FILE, out / AGENTS_FILE):
        if file.exists() and set(known := read_named(file)[0]) != set(models):
            raise BadInput(
                f"{file} was learnt for {', '.join(known)}, and what was measured is of {', '.join(sorted(models))}: "
                "give another folder"
            )


def _without(rows: Sequence[MeasuredPlacement], part: Sequence[MeasuredPlacement]) -> list[MeasuredPlacement]:
    left_out = {row.key for row in part}
    return [row for row in rows if row.key not in left_out]
