"""This module judges policies that were learnt in dreams: they are proposed, and decide only if they win.

Contestants play the same scenes in the same worlds: what came to the cluster of late, and futures of its present.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.learning.live.dreamer import played
from dl2_scheduler.learning.rollout import roll_out, taught_by
from dl2_scheduler.learning.teacher import PolicyTeacher
from dl2_scheduler.policies.learnt.weights import Weights
from dl2_scheduler.policies.rules.drf import Drf
from dl2_scheduler.policies.rules.estimates import TrueSpeeds
from dl2_scheduler.policies.rules.planner import Planner
from dl2_scheduler.world_model.worlds import DreamScene, Worlds

MARGIN = 0.005
"""Part by which a proposal has to be faster than another policy, to win in a world and on the mean."""
MOST = 0.6
"""Part of the worlds in which a proposal has to win."""


@dataclass(frozen=True)
class Verdict:
    """A `Verdict` says how a proposal did.

    Attributes:
        times: mean completion time in slots of each contestant, by world. The first is the proposal, the others are
            those that it has to beat, without those that needed not play any more.
        above_planner: part by which jobs take longer than under the planner with fitted speeds, in the first world;
            NaN: that did not play. A user would take it instead, where this stays high.
    """

    times: Mapping[str, list[float]]
    above_planner: float = float("nan")

    @property
    def accepted(self) -> bool:
        """It is true where the proposal beats all others."""
        own, *others = self.times.values()
        return all(wins(own, other) for other in others)

    @property
    def words(self) -> str:
        """The verdict, for people."""
        means = ", ".join(f"{name} {np.mean(times):.1f}" for name, times in self.times.items())
        beside = "" if np.isnan(self.above_planner) else f", {self.above_planner:+.0%} beside planner"
        return f"{'accepted' if self.accepted else 'refused'}: mean slots of a job: {means}{beside}"


def wins(own: list[float], other: list[float]) -> bool:
    """Return whether a policy is faster than another by the margin, in most of the worlds and on the mean."""
    needed = (1 - MARGIN) * np.array(other)
    return bool(np.mean(own <= needed) >= MOST and np.mean(own) <= needed.mean())


def judge(proposal: Weights, present: Weights, worlds: Worlds, rule: NodeRule) -> Verdict:
    """Let a proposal play against the present policy; where it beats that, against DRF too, and beside the planner.

    Args:
        proposal: the policy that would decide.
        present: the policy that decides.
        worlds: in which they play.
        rule: by which tasks find their node.
    """
    scenes = [(worlds.past(), worlds.future()) for _ in worlds.speeds]

    def times(weights: Weights, policy: AllocationPolicy | None = None, count: int = len(scenes)) -> list[float]:
        """Return the mean completion times in the first worlds, of a network or of another policy in its place.

        Args:
            weights: of the network.
            policy: the other policy; None: the network decides.
            count: of worlds.
        """
        lanes: list[DreamScene] = [scene for of_kind in zip(*scenes[:count], strict=True) for scene in of_kind]
        guide = None if policy is None else taught_by(PolicyTeacher(policy, rule))
        found = roll_out(played(lanes, worlds.first(count), weights.models, rule), weights, guide).completion
        return [float(mean) for mean in found.reshape(2, count).mean(axis=0)]

    first = {"proposal": times(proposal), "present": times(present)}
    if not Verdict(first).accepted:
        return Verdict(first)
    (planner,) = times(present, Planner(TrueSpeeds(worlds.expected)), count=1)  # one world, as it takes its time
    return Verdict({**first, "drf": times(present, Drf())}, first["proposal"][0] / planner - 1)
