"""This module is `dl2 learn-chic`: it makes a policy that is asked when jobs arrive and end, in a simulated pool."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dl2_scheduler.commands.progress import new_progress
from dl2_scheduler.commands.simulation.learning.learners import LearningWay
from dl2_scheduler.commands.simulation.pool import (
    USUAL_RATE,
    PoolQuestion,
    PoolType,
    Rate,
    check_rate,
    evaluate_in_pool,
    pool_world,
)
from dl2_scheduler.commands.simulation.simulated import SpeedTable
from dl2_scheduler.policies.chic.weights import CHIC_FILE, ChicWeights, save_chic
from dl2_scheduler.policies.learnt_names import CHIC
from dl2_scheduler.sim.lanes import NO_COST

if TYPE_CHECKING:
    from dl2_scheduler.learning.chic.cross_entropy import Iteration

_COMPARED = range(10)
"""Seeds of the sequences on which the policy is compared in the end: none of those that it saw while it was made."""


def learn_chic(
    out: Annotated[Path, typer.Option(metavar="RUN", help="Folder of the run, for --policy chic:RUN.")],
    pool: Annotated[PoolType, typer.Option(help="Where jobs train.")] = PoolType.FORMULA,
    speeds: SpeedTable = None,
    rate: Rate = USUAL_RATE,
    learner: Annotated[
        LearningWay, typer.Option(help="By a planner's lessons first; from nothing, mended; as in the paper.")
    ] = LearningWay.TAUGHT,
    pairs: Annotated[bool, typer.Option("--pairs", help="Chic-Pair: a worker and a server come together.")] = False,
    iterations: Annotated[
        int | None,
        typer.Option(min=0, max=100_000, help="Left out: 10, from nothing 100.", show_default=False),
    ] = None,
    sequences: Annotated[int, typer.Option(min=6, max=1_000, help="That it learns from; 30 others select.")] = 100,
    seed: Annotated[int, typer.Option(min=0, max=1_000_000, help="Of everything.")] = 0,
) -> None:
    """Learn how many tasks jobs get, asked when one arrives and when one ends, in Chic's pool.

    You can stop it at any time: RUN has the best policy so far.
    """
    # torch takes seconds to import, which no other command should
    from dl2_scheduler.figures.chic.pool_learning import PoolLessons, learn_in_pool
    from dl2_scheduler.learning.chic.settings import MENDED, PAPER, TAUGHT
    from dl2_scheduler.learning.run_folder import RunFolder

    check_rate(rate)
    world = pool_world(pool, speeds)
    settings = {LearningWay.TAUGHT: TAUGHT, LearningWay.MENDED: MENDED, LearningWay.PAPER: PAPER}[learner]
    settings = replace(settings, pairs=pairs, iterations=settings.iterations if iterations is None else iterations)
    folder = RunFolder(out)
    with folder.held():
        folder.refuse_another()
        told = {"pool": pool.value, "speeds": str(speeds or ""), "rate": rate, "learner": learner.value}
        folder.write_settings({**told, "pairs": pairs, "iterations": settings.iterations, "seed": seed})
        with new_progress() as progress, folder.best_so_far(CHIC_FILE, f"{CHIC}{out}"):

            def judged(each: "Iteration") -> None:
                numbers = {} if each.act is None else {"mean completion time": each.act}
                progress.tell("learning", each.number, settings.iterations, numbers)

            def keep(best: ChicWeights) -> None:
                save_chic(best, out / CHIC_FILE)

            progress.tell("a planner gives lessons" if settings.lessons else "sequences are drawn", 0, 1, {})
            learn_in_pool(world, settings, PoolLessons(rate, training=sequences), seed, judged, keep)
    names = f"optimus-true,optimus-true-events,{CHIC}{out}"
    asked = PoolQuestion(world, rate, names, _COMPARED, None, NO_COST, as_json=False)
    evaluate_in_pool(asked, False, lambda _: nullcontext(lambda _: None))
