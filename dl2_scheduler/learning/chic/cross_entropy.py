"""The modified cross-entropy method of Chic (IWQoS 2019, algorithm 1), read from top to bottom, with the paper's names.

Each iteration plays N episodes by the policy and one at random, keeps the best of them, and makes what was decided in
these more likely.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from dl2_scheduler.learning.chic.episodes import ChicEpisode, JobSequence, play
from dl2_scheduler.learning.chic.network import ChicNet, fit
from dl2_scheduler.learning.chic.settings import ChicSettings
from dl2_scheduler.policies.chic.network import BEST, SAMPLED, UNIFORM, Floats, Mask, Network
from dl2_scheduler.policies.chic.phase import PhaseSteps
from dl2_scheduler.policies.chic.weights import ChicForm, ChicWeights

UNIT = 1200.0
"""Seconds that cost 1 in the reward r1."""

_MOST_STEPS = 40_000  # free decisions of an episode that are kept


@dataclass(frozen=True)
class Iteration:
    """An `Iteration` says what became of one; iteration 0 is what learning began with.

    Attributes:
        number: k.
        bound: xi_k; where sequences are ranked each by itself, in places from 0 to 1.
        mean_return: of all its episodes.
        act: mean completion time on the validation sequences, in seconds; None: it was not judged.
        decisions: that were fitted.
    """

    number: int
    bound: float
    mean_return: float
    act: float | None
    decisions: int


@dataclass(frozen=True)
class ChicRun:
    """A `ChicRun` is what was learnt.

    Attributes:
        weights: those of the least completion time on the validation sequences.
        curve: all iterations.
    """

    weights: ChicWeights
    curve: tuple[Iteration, ...]


def cumulative_return(episode: ChicEpisode) -> float:
    """Return R of an episode: r1 sums up to minus the time that all its jobs spend there, to which come the fines."""
    return float(-episode.times.sum() / UNIT + episode.fines)


def bound_of(scores: Floats, played: int, rho: float) -> float:
    """Return xi = R_(floor((1 - rho) N)), of the returns in rising order, numbered from 1.

    Args:
        scores: of the N + 1 episodes.
        played: N.
        rho: part of them that is the elite.
    """
    return float(np.sort(scores)[max(1, int((1 - rho) * played + 1e-9)) - 1])


def ranked(returns: Floats, sequence: Sequence[int]) -> Floats:
    """Return each episode's place among those of the same sequence, from 0, the worst, to 1.

    Args:
        returns: of the episodes.
        sequence: of each.
    """
    places, of = np.zeros(len(returns)), np.asarray(sequence)
    for each in np.unique(of):
        here = np.flatnonzero(of == each)
        places[here[np.argsort(returns[here], kind="stable")]] = np.linspace(0, 1, len(here)) if len(here) > 1 else 0.5
    return places


def smooth(net: ChicNet, before: Sequence[torch.Tensor], alpha: float) -> None:
    """Take alpha of the fitted weights and the rest of those before.

    Args:
        net: fitted; changed.
        before: its weights before.
        alpha: 1: the fitted ones stay.
    """
    with torch.no_grad():
        for now, old in zip(net.parameters(), before, strict=True):
            now.mul_(alpha).add_(old, alpha=1 - alpha)


def mean_time(form: ChicForm, network: Network, sequences: Sequence[JobSequence], settings: ChicSettings) -> float:
    """Return the mean completion time of a policy, in seconds.

    Args:
        form: how it decides.
        network: that decides.
        sequences: of as many jobs each.
        settings: of the run.
    """
    random, how = np.random.default_rng(0), SAMPLED if form.sampled else BEST
    times = [play(form.rules, settings.fines, network, each, how, random, 0).times.mean() for each in sequences]
    return float(np.mean(times))


def learn_chic(
    form: ChicForm,
    settings: ChicSettings,
    training: Sequence[JobSequence],
    validation: Sequence[JobSequence],
    seed: int,
    lessons: PhaseSteps | None = None,
    tell: Callable[[Iteration], None] = lambda _: None,
    keep: Callable[[ChicWeights], None] = lambda _: None,
) -> ChicRun:
    """Learn a policy.

    Args:
        form: how it decides.
        settings: of learning.
        training: sequences from which episodes are drawn.
        validation: by which the policy is chosen; it learns nothing from them.
        seed: of everything that is drawn.
        lessons: a planner's decisions, which are fitted first.
        tell: told of each iteration.
        keep: gets each policy that is the best so far, so that an interrupted run leaves something.
    """
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    net = ChicNet(form.rules, settings)  # theta_0
    if lessons is not None:
        fit(net, lessons, torch.optim.Adam(net.parameters(), settings.lesson_rate), settings.lessons, 512, fall=True)
    net.eval()
    best, least = net.network(), mean_time(form, net.network(), validation, settings)
    keep(ChicWeights(form, best))
    curve = [Iteration(0, 0.0, 0.0, least, 0)]
    tell(curve[0])
    optimizer = torch.optim.Adam(net.parameters(), settings.learning_rate)
    for k in range(1, settings.iterations + 1):
        chosen = _drawn_sequences(settings, len(training), random)
        network = net.network()
        x = [
            play(form.rules, settings.fines, network, training[sequence], how, random, _MOST_STEPS)
            for sequence, how in zip(chosen, [SAMPLED] * settings.episodes + [UNIFORM], strict=True)
        ]
        returns = np.array([cumulative_return(each) for each in x])
        scores = ranked(returns, chosen) if settings.sequences else returns
        xi = bound_of(scores, settings.episodes, settings.elite)
        elite = _decisions([each for each, score in zip(x, scores, strict=True) if score >= xi])
        before = [value.detach().clone() for value in net.parameters()]
        fit(net, elite, optimizer, settings.passes, settings.batch)  # theta_hat
        smooth(net, before, settings.smoothing)  # theta_k
        act = None
        if k % settings.judge_every == 0:
            act = mean_time(form, net.network(), validation, settings)
            if act < least:
                best, least = net.network(), act
                keep(ChicWeights(form, best))
        curve.append(Iteration(k, xi, float(returns.mean()), act, len(elite.actions)))
        tell(curve[-1])
    return ChicRun(ChicWeights(form, best), tuple(curve))


def _drawn_sequences(settings: ChicSettings, there: int, random: np.random.Generator) -> list[int]:
    """Return the sequence of each of the N + 1 episodes."""
    episodes = settings.episodes + 1
    if not settings.sequences:
        drawn: list[int] = random.integers(there, size=episodes).tolist()
        return drawn
    some = random.choice(there, settings.sequences, replace=False)
    return [int(some[number % settings.sequences]) for number in range(episodes)]


def _decisions(episodes: Sequence[ChicEpisode]) -> PhaseSteps:
    """Return the free decisions of some episodes together."""
    arrays = [np.concatenate([each.steps[part] for each in episodes]) for part in range(3)]
    states, actions, allowed = arrays
    mask: Mask = allowed
    return PhaseSteps(states, actions, mask)
