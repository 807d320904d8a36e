"""This module lets Chic learn in a simulated pool: for its figures, and for `dl2 learn-chic`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.jobs import Job
from dl2_scheduler.learning.chic.cross_entropy import ChicRun, Iteration, learn_chic
from dl2_scheduler.learning.chic.episodes import JobSequence, sequence_of
from dl2_scheduler.learning.chic.settings import ChicSettings
from dl2_scheduler.learning.chic.teacher import lessons_of
from dl2_scheduler.policies.chic.weights import ChicForm, ChicWeights
from dl2_scheduler.policies.pool.roll_out import RollOut
from dl2_scheduler.policies.rules.estimates import TrueSpeeds
from dl2_scheduler.policies.rules.planner import Planner
from dl2_scheduler.sim.events.worlds import MODELS, PoolWorld

_MOST_ITERATIONS = 200.0  # of a job in the paper; they count as 1 in a state
_TRAINING, _VALIDATION, TEST = 10_000, 800_000, 900_000  # the first seeds of sequences
_A_SEED = 1_000  # by which the training sequences of two seeds are apart, and the most that there are
_PAST_TEST = 1_000_000  # is added where these would reach the sequences of validation, or later ones


def first_training(seed: int) -> int:
    """Return the seed of the first training sequence of a seed of learning: no policy sees what it is judged by."""
    first = _TRAINING + _A_SEED * seed
    return first if first < _VALIDATION else first + _PAST_TEST


@dataclass(frozen=True)
class PoolLessons:
    """These `PoolLessons` say from which sequences Chic learns.

    Attributes:
        rate: jobs an hour.
        jobs: W, of a training sequence.
        training: sequences from which episodes are drawn.
        validation: sequences by which a policy is chosen.
        judged: jobs of such a sequence.
    """

    rate: float
    jobs: int = 30
    training: int = 100
    validation: int = 30
    judged: int = 30


def learn_in_pool(
    world: PoolWorld,
    settings: ChicSettings,
    lessons: PoolLessons,
    seed: int,
    tell: Callable[[Iteration], None] = lambda _: None,
    keep: Callable[[ChicWeights], None] = lambda _: None,
) -> ChicRun:
    """Learn a policy of Chic.

    Args:
        world: where jobs train.
        settings: of learning.
        lessons: see there.
        seed: of learning and of its sequences.
        tell: see `learn_chic`.
        keep: see `learn_chic`.
    """
    form = form_of(world, settings)
    jobs = drawn_jobs(world, first_training(seed), lessons.training, lessons.rate, lessons.jobs)
    training = _arrays(world, jobs, form)
    judged = drawn_jobs(world, _VALIDATION, lessons.validation, lessons.rate, lessons.judged)
    taught = None
    if settings.lessons:
        taught = lessons_of(_teacher(world, settings), jobs, training, world.nodes, form.rules)
    return learn_chic(form, settings, training, _arrays(world, judged, form), seed, taught, tell, keep)


def form_of(world: PoolWorld, settings: ChicSettings) -> ChicForm:
    """Return the form of what these settings learn."""
    switches = settings.until_no_gain, settings.void_ends, settings.present_only, settings.sampled
    return ChicForm(tuple(MODELS), _MOST_ITERATIONS * world.longer, settings.visible, settings.pairs, *switches)


def drawn_jobs(world: PoolWorld, first: int, sequences: int, rate: float, count: int) -> list[list[Job]]:
    """Return sequences of jobs.

    Args:
        world: where they train.
        first: seed of the first sequence; the others follow.
        sequences: how many.
        rate: jobs an hour.
        count: jobs of a sequence.
    """
    return [world.jobs(first + number, rate, count) for number in range(sequences)]


def _teacher(world: PoolWorld, settings: ChicSettings) -> AllocationPolicy:
    """Return who teaches: where a climb ends on local optima, the planner that jumps over them."""
    speeds = TrueSpeeds(world.speeds)
    jumps = world.name == "table" and not settings.pairs
    return Planner(speeds) if jumps else RollOut(speeds, settings.pairs)


def _arrays(world: PoolWorld, jobs: Sequence[Sequence[Job]], form: ChicForm) -> list[JobSequence]:
    return [sequence_of(some, world.nodes, world.speeds, form.models, form.scale) for some in jobs]
