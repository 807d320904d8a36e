"""This module is `dl2 learn-placement`: it makes a policy that says where tasks go, in simulated clusters."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.commands.common import show
from dl2_scheduler.commands.progress import new_progress
from dl2_scheduler.commands.simulation.compared import comparison_table
from dl2_scheduler.commands.simulation.learning.taught_jobs import TaughtJobs
from dl2_scheduler.commands.simulation.placed import compare_in_world
from dl2_scheduler.policies.learnt.dl2 import SETTINGS_FILE
from dl2_scheduler.policies.learnt.placer_files import PLACER_FILE, SPEEDS_FILE
from dl2_scheduler.policies.placement.registry import LEARNT, local_search
from dl2_scheduler.policies.placement.speed_model import (
    PROFILES_FILE,
    SpeedModel,
    open_speed_model,
    save_speed_model,
)
from dl2_scheduler.sim.placed.scenario import Scenario
from dl2_scheduler.sim.placed.worlds import WorldType
from elastic_ps.system.option_groups import grouped
from elastic_ps.system.terminal import say

if TYPE_CHECKING:
    from dl2_scheduler.learning.bootstrap import Tell
    from dl2_scheduler.learning.placement.placer_run import PlacerSettings

_COMPARED = range(10)
"""Seeds of the sequences on which the policy is compared in the end: none of those that it saw while it was made."""


@grouped
def learn_placement(
    out: Annotated[Path, typer.Option(metavar="RUN", help="Folder of the run, for --placement learnt:RUN.")],
    model: Annotated[
        Path | None, typer.Option(metavar="MODEL", help="What dl2 fit --places has fitted: jobs have its speeds.")
    ] = None,
    world: Annotated[
        WorldType | None, typer.Option(help="Or a simulated world; speeds are fitted to it first.")
    ] = None,
    *,
    taught: TaughtJobs,
    samples: Annotated[int, typer.Option(min=20, max=1_000_000, help="Of a world, to fit speeds to.")] = 13_177,
    sequences: Annotated[int, typer.Option(min=1, max=10_000, help="Of a load, to imitate, and to select by.")] = 20,
    updates: Annotated[int, typer.Option(min=0, max=1_000_000, help="From rewards.")] = 300,
    seed: Annotated[int, typer.Option(min=0, max=1_000_000, help="Of everything but the jobs to imitate.")] = 0,
) -> None:
    """Learn where tasks go: imitate a planner, then improve by rewards, in clusters with fitted speeds.

    You can stop it at any time: RUN has the best policy so far.
    """
    # torch takes seconds to import, which no other command should
    from dl2_scheduler.learning.placement.placer_run import PlacerSettings
    from dl2_scheduler.learning.run_folder import RunFolder

    if (model is None) == (world is None):
        raise BadInput("give --model, or --world: jobs need speeds, which are fitted")
    known = None if model is None else open_speed_model(model)
    scenarios = taught.of_world(world) if world is not None else taught.of_model(known or SpeedModel(()))
    told: dict[str, Any] = {**asdict(taught), "model": str(model or ""), "world": world or "", "samples": samples}
    folder = RunFolder(out)
    with folder.held():
        folder.refuse_another()
        refuse_other_speeds(out, model)
        folder.write_settings({**told, "sequences": sequences, "updates": updates, "seed": seed})
        with new_progress() as progress, folder.best_so_far(PLACER_FILE, f"{LEARNT}:{out}"):
            if known is None:
                known, scenarios = _fitted(scenarios, samples, progress.tell)
            _learn(out, known, scenarios, sequences, PlacerSettings(updates=updates), seed, progress.tell)
            compared = [_compared(each, out, progress.tell) for each in scenarios]
    for load, table in zip(taught.loads, compared, strict=True):
        say(f"{load:g} jobs an interval, in clusters with the fitted speeds:")
        show(table)
    say(f"Of {len(_COMPARED)} sequences that it did not learn from. Use it as --placement {LEARNT}:{out}")


def refuse_other_speeds(out: Path, model: Path | None) -> None:
    """Refuse a folder whose fitted speeds would be lost; those of an interrupted run may be. Raises BadInput."""
    if (out / SETTINGS_FILE).exists() or (model is not None and out.resolve() == model.resolve()):
        return
    for name in (SPEEDS_FILE, PROFILES_FILE):
        if (out / name).exists():
            raise BadInput(f"{out} holds fitted speeds ({name}), which would be lost: name another folder")


def _fitted(scenarios: Sequence[Scenario], samples: int, tell: "Tell") -> tuple[SpeedModel, list[Scenario]]:
    """Return a model that is fitted to a simulated world, and the scenarios with its speeds."""
    from dl2_scheduler.figures.placement.fitted_model import fitted_model

    what = f"speeds are fitted to {samples} samples"
    tell(what, 0, 1, {})
    found = fitted_model(scenarios[0], samples)
    assert found.speeds is not None
    tell(what, 1, 1, {})
    return found, [replace(each, world=found.speeds) for each in scenarios]


def _learn(
    out: Path,
    known: SpeedModel,
    scenarios: Sequence[Scenario],
    sequences: int,
    settings: "PlacerSettings",
    seed: int,
    tell: "Tell",
) -> None:
    """Watch the planner, then learn, and keep the best in the folder."""
    from dl2_scheduler.learning.placement.placer_lessons import learn_run, take_lessons

    save_speed_model(out, known)  # what cannot be written is told before the work

    def watched(done: int) -> None:
        tell("the planner is watched", done, sequences * len(scenarios), {})

    def judged(done: int, excess: float) -> None:
        tell("learning from rewards", done, settings.updates, {"percent over the planner": 100 * excess})

    watched(0)
    lessons = take_lessons(scenarios, local_search(known), sequences, sequences, watched)
    tell("the planner is imitated", 0, 1, {})
    learn_run(out, known, lessons, settings, seed, judged)


def _compared(scenario: Scenario, out: Path, tell: "Tell") -> Table:
    """Return how the policy does beside the planner and load balancing."""
    names = ["load-balance", f"local-search:{out}", f"{LEARNT}:{out}"]
    done = iter(range(1, len(names) * len(_COMPARED) + 1))
    what = f"policies are compared at {scenario.workload.mean:g} jobs an interval"
    found = compare_in_world(
        scenario, names, None, _COMPARED, lambda _: tell(what, next(done), len(names) * len(_COMPARED), {})
    )
    return comparison_table("placement", "intervals", found, {})
