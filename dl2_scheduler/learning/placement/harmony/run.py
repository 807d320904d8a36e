"""This module learns as Harmony does (INFOCOM 2019, section IV): REINFORCE with a value network and experience replay.

The reward of an interval is the part of their training that all jobs do in it, given to each choice of that interval;
later rewards count 0.9 for each choice. What is replayed was chosen by older policies, for which the paper corrects
nothing, and neither does this. What it leaves out (end values, lengths, how many updates) is in `HarmonySettings`.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from dl2_scheduler.cluster.hardware.machines import Ints
from dl2_scheduler.learning.placement.fresh_jobs import FreshJobs
from dl2_scheduler.learning.placement.harmony.lessons import HarmonyChoices, fit_harmony
from dl2_scheduler.learning.placement.harmony.network import HIDDEN, HarmonyNet
from dl2_scheduler.learning.placement.harmony.replay import ChoiceReplay, Transitions
from dl2_scheduler.learning.placement.harmony.tasks import HarmonyLockstep
from dl2_scheduler.learning.placement.judging import LEARNT, OF_A_RUN, PlacementJudge
from dl2_scheduler.learning.placement.lockstep.tasks import Mask
from dl2_scheduler.policies.learnt.placer import F32
from dl2_scheduler.sim.placed.scenario import Scenario

_LEAST_ENTROPY, _LEAST_EPSILON, _ANNEALED = 0.01, 0.05, 0.6
"""End values of exploration, and the part of the updates within which it falls to them: not in the paper."""


@dataclass(frozen=True)
class HarmonySettings:
    """These `HarmonySettings` say how Harmony's own policy learns.

    Attributes:
        updates: of the networks, one an interval.
        workers: clusters that give experience.
        sampled: choices of an update for each of them.
        replay: choices that are kept; 0: those of the last interval alone, all of them.
        rate: of Adam.
        discount: of a choice's value for the one before.
        explore: weight of the entropy, and probability of another server, at the start; 0: none at all.
        value: a network says what states are worth; else the mean of the rewards so far does.
        hidden: units of the hidden layers.
        judged_every: updates between two judgements.
        epochs: passes over a planner's choices at the start.
    """

    updates: int = 2000
    workers: int = 20
    sampled: int = 32
    replay: int = 8192
    rate: float = 1e-4
    discount: float = 0.9
    explore: float = 0.5
    value: bool = True
    hidden: tuple[int, ...] = HIDDEN
    judged_every: int = 100
    epochs: int = 16


class HarmonyLearner:
    """A `HarmonyLearner` is a policy of Harmony's while it learns.

    Args:
        scenarios: whose jobs come, in turn; all in the same clusters and fitted model of speeds.
        net: of the policy, changed.
        settings: see there.
        seed: see `FreshJobs`, and of the draws.
    """

    def __init__(self, scenarios: Sequence[Scenario], net: HarmonyNet, settings: HarmonySettings, seed: int):
        self.net, self._settings, self._first, self._fresh = net, settings, scenarios[0], FreshJobs(scenarios, seed)
        self._rng = np.random.default_rng(seed)
        groups = len(scenarios[0].machines.sockets)
        self._value = HarmonyNet(len(scenarios[0].profiles), groups, settings.hidden, value=True)
        self._optimizer = torch.optim.Adam([*net.parameters(), *self._value.parameters()], lr=settings.rate)
        self._lockstep = self._begun(np.arange(settings.workers))
        self._groups = groups
        self._mean = 0.0
        self._replay = ChoiceReplay(settings.replay)

    def update(self, done: float) -> None:
        """Run an interval and learn once.

        Args:
            done: part of all updates that have been made.
        """
        left = max(0.0, 1 - done / _ANNEALED)
        explore = self._settings.explore
        epsilon, entropy = (
            least + (explore - least) * left if explore else 0.0 for least in (_LEAST_EPSILON, _LEAST_ENTROPY)
        )
        new = self._interval(epsilon)
        if self._settings.replay:
            self._replay.add(new)
            new = self._replay.sample(self._settings.workers * self._settings.sampled, self._rng)
        self._learn(new, entropy)

    def _interval(self, epsilon: float) -> Transitions:
        """Run each cluster to the next interval in which it chooses, and return its choices in this one."""
        lockstep = self._lockstep
        began, before = lockstep.clusters.interval.copy(), lockstep.progress()
        rounds: list[tuple[Ints, F32, F32, Mask, Ints]] = []

        def decide(jobs: F32, servers: F32, allowed: Mask, which: Ints) -> Ints:
            chosen = self._draw(jobs, servers, allowed, which, epsilon)
            rounds.append((which, jobs, servers, allowed, chosen))
            return chosen

        lockstep.run(decide, lambda each: each.clusters.interval > began)
        reward = lockstep.progress() - before
        ended = np.flatnonzero(~lockstep.active)
        found = Transitions.of(rounds, reward, lockstep)
        if len(ended):
            lockstep.replace(ended, self._begun(ended))
        return found

    def _draw(self, jobs: F32, servers: F32, allowed: Mask, which: Ints, epsilon: float) -> Ints:
        """Draw actions by their probabilities; by chance a task goes by best fit or load balancing instead."""
        with torch.no_grad():
            scores = self.net(torch.from_numpy(jobs), torch.from_numpy(servers)).numpy()
        scores = np.where(allowed, scores, -np.inf)
        chosen: Ints = (scores + self._rng.gumbel(size=scores.shape)).argmax(axis=1)
        for row in np.flatnonzero(self._rng.random(len(which)) < epsilon):
            first = chosen[row] // self._groups * self._groups
            room = servers[row, :, :2].sum(axis=1) * (1 if self._rng.random() < 0.5 else -1)
            fits = allowed[row, first : first + self._groups]
            chosen[row] = first + np.where(fits, room, np.inf).argmin()
        return chosen

    def _learn(self, part: Transitions, entropy: float) -> None:
        """Make choices more likely by what they were worth more than their states."""
        logs = torch.log_softmax(self.net(part.jobs, part.servers).masked_fill(~part.allowed, -torch.inf), dim=1)
        worth, loss = self._worth(part)
        gain = logs.gather(1, part.chosen[:, None])[:, 0] * worth
        spread = -(logs.exp() * logs.masked_fill(~part.allowed, 0)).sum(dim=1)
        total = loss - (gain + entropy * spread).mean()
        self._optimizer.zero_grad()
        total.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()

    def _worth(self, part: Transitions) -> tuple[Tensor, Tensor]:
        """Return what choices were worth more than their states, and the loss of the value network."""
        if not self._settings.value:
            self._mean += 0.01 * (float(part.reward.mean()) - self._mean)
            return part.reward - self._mean, torch.zeros(())
        with torch.no_grad():
            later = self._value(part.next_jobs, part.next_servers)[:, 0] * part.goes_on
        value = self._value(part.jobs, part.servers)[:, 0]
        target = part.reward + self._settings.discount * later
        return (target - value).detach(), nn.functional.mse_loss(value, target)

    def _begun(self, clusters: Ints) -> HarmonyLockstep:
        return HarmonyLockstep.begun(self._first, self._fresh.of(clusters))


def learn_harmony(
    scenarios: Sequence[Scenario],
    lessons: HarmonyChoices | None,
    judge: PlacementJudge,
    settings: HarmonySettings = HarmonySettings(),
    seed: int = 0,
    tell: Callable[[str], None] = lambda _: None,
) -> HarmonyNet:
    """Make a policy as Harmony does, and return the one that was best on sequences which nobody learnt from.

    Args:
        scenarios: see `learn_placer`.
        lessons: a planner's choices, which it imitates first; None: it begins from nothing, as in the paper.
        judge: selects the best.
        settings: of the run.
        seed: of everything but the lessons.
        tell: gets a line for each judgement.
    """
    torch.manual_seed(seed)
    net = HarmonyNet(len(scenarios[0].profiles), len(scenarios[0].machines.sockets), settings.hidden)
    if lessons is not None:
        fit_harmony(net, lessons, settings.epochs, seed)
    best = deepcopy(net)
    least = _excess(judge, best)
    tell(f"at the start: {least:+.1%}")
    learner = HarmonyLearner(scenarios, net, settings, LEARNT + seed * OF_A_RUN)
    for update in range(settings.updates):
        learner.update(update / settings.updates)
        if (update + 1) % settings.judged_every == 0:
            excess = _excess(judge, net)
            tell(f"{update + 1} updates: {excess:+.1%}")
            if excess < least:
                least, best = excess, deepcopy(net)
    return best


def _excess(judge: PlacementJudge, net: HarmonyNet) -> float:
    lockstep = HarmonyLockstep.begun(judge.scenario, judge.jobs)
    lockstep.run(lambda jobs, servers, allowed, _: net.best(jobs, servers, allowed))
    return judge.excess(lockstep.times())
