"""This module makes the run of a placement policy: a planner's lessons, then learning, the best so far in a folder."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dl2_scheduler.cluster.interfaces import PlacementPolicy
from dl2_scheduler.learning.placement.imitation import Choices, watch
from dl2_scheduler.learning.placement.judging import TAUGHT, PlacementJudge
from dl2_scheduler.learning.placement.placer_run import PlacerSettings, learn_placer
from dl2_scheduler.policies.learnt.placer import LearntPlacer
from dl2_scheduler.policies.learnt.placer_files import PlacerRun, save_placer
from dl2_scheduler.policies.placement.speed_model import SpeedModel, save_speed_model
from dl2_scheduler.sim.placed.scenario import Scenario


@dataclass(frozen=True)
class PlacerLessons:
    """These `PlacerLessons` are what placement policies of a cluster begin with; several seeds may share them.

    Attributes:
        scenarios: see `learn_placer`.
        choices: of the planner.
        judge: selects policies, beside the planner.
    """

    scenarios: Sequence[Scenario]
    choices: Choices
    judge: PlacementJudge


def take_lessons(
    scenarios: Sequence[Scenario],
    planner: PlacementPolicy,
    taught: int,
    selected: int,
    tell: Callable[[int], None] = lambda _: None,
) -> PlacerLessons:
    """Watch a planner, and let it place the sequences by which policies will be selected.

    Args:
        scenarios: see `learn_placer`.
        planner: that is imitated, and that policies are compared with.
        taught: sequences of each scenario that are watched.
        selected: sequences of each scenario by which policies are selected.
        tell: gets how many sequences of all scenarios have been watched, after each of them.
    """
    choices = Choices()
    for number in range(taught):
        watch(scenarios, planner, range(TAUGHT + number, TAUGHT + number + 1), [choices])
        tell((number + 1) * len(scenarios))
    return PlacerLessons(scenarios, choices, PlacementJudge(scenarios, planner, selected))


def learn_run(
    run: Path,
    model: SpeedModel,
    lessons: PlacerLessons,
    settings: PlacerSettings,
    seed: int = 0,
    tell: Callable[[int, float], None] = lambda *_: None,
) -> LearntPlacer:
    """Make a policy, and keep the best so far in a folder from its first judgement on: `learnt:` opens it.

    Args:
        run: the folder, which is made where there is none; it gets the model, too, by which choices are explained.
        model: of speeds, whose models are those of the scenarios.
        lessons: to begin with.
        settings: of the run.
        seed: of everything but the lessons.
        tell: see `learn_placer`.
    """
    save_speed_model(run, model)

    def keep(policy: LearntPlacer) -> None:
        save_placer(run, PlacerRun(model.models, policy, model.speeds))

    return learn_placer(lessons.scenarios, lessons.choices, lessons.judge, settings, seed, tell, keep)
