"""This module judges policies that were learnt in dreams: they are proposed, and decide only if they win.

Contestants play the same scenes in the same worlds: what came to the cluster of late, and futures of its present. In
these worlds what was never tried is as fast as the dreams hope. Else no policy that tries it would win, nobody would
find out, and learning would stop at what the policies tried by which the cluster began.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.learning.live.dreamer import played
from dl2_scheduler.learning.live.rule_names import DRF, PLANNER
from dl2_scheduler.learning.rollout import Floats, means, roll_out, taught_by
from dl2_scheduler.learning.teacher import PolicyTeacher
from dl2_scheduler.policies.learnt.weights import Weights
from dl2_scheduler.policies.rules.drf import Drf
from dl2_scheduler.policies.rules.estimates import TrueSpeeds
from dl2_scheduler.policies.rules.planner import Planner
from dl2_scheduler.sim.lanes import comparable
from dl2_scheduler.world_model.worlds import DreamScene, Worlds

MARGIN = 0.005
"""Part by which a proposal has to be faster than another policy, to win in a world and on the mean."""
MOST = 0.6
"""Part of the worlds in which a proposal has to win."""
_OF_RULES = 2  # worlds in which they play
_MOST_SLOTS = 400
_MOST_SECONDS = 60.0  # of computing for a policy; then all are cut at the slot to which the first has come


@dataclass(frozen=True)
class Verdict:
    """A `Verdict` says how a proposal did.

    Attributes:
        proposal: its mean completion times in slots, by world.
        present: likewise, of the policy that decides now, which it has to beat.
        beside: part by which jobs take longer than under these rules, by name, under what decides from now on, in the
            first worlds. Where the planner is ahead it stands in.
    """

    proposal: list[float]
    present: list[float]
    beside: Mapping[str, float] = field(default_factory=dict)

    @property
    def accepted(self) -> bool:
        """It is true where the proposal beats what decides now."""
        return wins(self.proposal, self.present)

    @property
    def words(self) -> str:
        """The verdict, for people."""
        what = "accepted" if self.accepted else "refused"
        means = (
            f"{what}: mean slots of a job: proposal {np.mean(self.proposal):.1f}, present {np.mean(self.present):.1f}"
        )
        beside = [f"{part:+.0%} beside {name}" for name, part in self.beside.items()]
        return ", ".join([means, *(beside if self.accepted else ())])


def wins(own: list[float], other: list[float]) -> bool:
    """Return whether a policy is faster than another by the margin, in most of the worlds and on the mean."""
    needed = (1 - MARGIN) * np.array(other)
    return bool(np.mean(own <= needed) >= MOST and np.mean(own) <= needed.mean())


def judge(proposal: Weights, present: Weights, worlds: Worlds, rule: NodeRule) -> Verdict:
    """Let a proposal play against the present policy, and DRF and the planner beside the one that wins.

    It need not beat DRF: where both are behind that, the better one decides, and the guard may let DRF decide instead.

    Args:
        proposal: the policy that would decide.
        present: the policy that decides.
        worlds: in which they play.
        rule: by which tasks find their node.
    """
    match = _Match(worlds.hopeful, rule)
    own, slots = match.times(proposal), match.most_slots
    other = match.times(present)
    if match.most_slots < slots:  # the present one was cut where the proposal was not
        own = match.times(proposal)
    ours, theirs = _compared(own, other)
    decides, times = (proposal, own) if wins(ours, theirs) else (present, other)
    return Verdict(ours, theirs, match.beside_rules(decides, times))


def beside_rules(present: Weights, worlds: Worlds, rule: NodeRule) -> dict[str, float]:
    """Return by how much longer jobs take under the present policy than under DRF and the planner; see `Verdict`.

    Args:
        present: the policy that decides.
        worlds: in which they play.
        rule: by which tasks find their node.
    """
    match = _Match(worlds.hopeful, rule)
    return match.beside_rules(present, match.times(present))


def _compared(*played: Floats) -> list[list[float]]:
    """Return the mean completion times of policies, by world."""
    ended, lacking = np.stack(played, axis=1)
    return comparable(ended, lacking).tolist()  # type: ignore[no-any-return]


class _Match:
    """A `_Match` lets policies play the same scenes.

    Args:
        worlds: in which they play.
        rule: by which tasks find their node.

    Attributes:
        most_slots: at which all that play from now on are cut.
    """

    def __init__(self, worlds: Worlds, rule: NodeRule):
        self._worlds, self._rule, self.most_slots = worlds, rule, _MOST_SLOTS
        self._scenes = [(worlds.past(), worlds.future()) for _ in worlds.speeds]

    def times(self, weights: Weights) -> Floats:
        """Return what a network comes to in all worlds; see `_played`."""
        return self._played(weights, None, len(self._scenes))

    def beside_rules(self, weights: Weights, own: Floats) -> dict[str, float]:
        """Return part by which a network takes longer than DRF and the planner, in a few worlds, as rules take longer.

        Args:
            weights: of the network.
            own: what it came to, see `_played`.
        """
        planner = self._played(weights, Planner(TrueSpeeds(self._worlds.hoped)), _OF_RULES)  # most is cut for it
        drf = self._played(weights, Drf(), _OF_RULES)
        if self.most_slots < _MOST_SLOTS:  # they may have been cut where the network was not
            own = self._played(weights, None, _OF_RULES)
        network, *rules = map(sum, _compared(own[:, :_OF_RULES], drf, planner))
        return {name: network / rule - 1 for name, rule in zip((DRF, PLANNER), rules, strict=True)}

    def _played(self, weights: Weights, policy: AllocationPolicy | None, count: int) -> Floats:
        """Return means over jobs by world, (2, worlds): completion times in slots, and what jobs that were cut lack."""
        scenes: list[DreamScene] = [scene for of_kind in zip(*self._scenes[:count], strict=True) for scene in of_kind]
        guide = None if policy is None else taught_by(PolicyTeacher(policy, self._rule))
        clusters = played(scenes, self._worlds.first(count), weights.models, self._rule)
        completion = roll_out(clusters, weights, guide, None, self.most_slots, _MOST_SECONDS).completion
        if not clusters.lanes.over.all():
            self.most_slots = min(self.most_slots, clusters.lanes.slot)
        found = np.stack([completion, means(clusters.lanes, clusters.lanes.lacking())])
        return found.reshape(2, 2, count).mean(axis=1)  # type: ignore[no-any-return]
