"""This module makes policies by their names, and says of each name where it may decide."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.free_resources import FreeResources, NodeRule
from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.jobs import Job, Node
from dl2_scheduler.cluster.snapshot import JobState, Snapshot
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.policies.learnt.dl2 import learnt, load
from dl2_scheduler.policies.learnt_names import CHIC, DL2
from dl2_scheduler.policies.rules.drf import Drf
from dl2_scheduler.policies.rules.estimates import TrueSpeeds
from dl2_scheduler.policies.rules.fifo import Fifo
from dl2_scheduler.policies.rules.optimus import Optimus
from dl2_scheduler.policies.rules.planner import Planner
from dl2_scheduler.policies.rules.speed_fit import EXPLORING, FittedSpeeds
from dl2_scheduler.policies.rules.srtf import Srtf
from dl2_scheduler.policies.rules.tetris import Tetris
from dl2_scheduler.policies.user_policy import Simulated, is_own, make_own


@dataclass(frozen=True)
class PolicySpec:
    """A `PolicySpec` says how the policy of one name is made, and where it may decide.

    Attributes:
        name: by which people choose it.
        make: makes a new one of the jobs' true speeds, in samples a second, which most of them do not look at.
        live: whether it may drive a live cluster, where nobody knows the true speeds.
        node_rule: the rule by which its tasks find their node; None: the rule that was asked for.
    """

    name: str
    make: Callable[[Speeds], AllocationPolicy]
    live: bool = True
    node_rule: NodeRule | None = None


def _knowing(name: str, make: Callable[[Speeds], AllocationPolicy]) -> PolicySpec:
    """Describe a policy that knows the true speeds: only a simulation can tell it."""
    return PolicySpec(name, make, live=False)


def _published(name: str, make: Callable[[Speeds], AllocationPolicy]) -> PolicySpec:
    """Describe a policy that keeps the published code's faults, its rule for nodes too: it is only compared with."""
    return PolicySpec(name, make, live=False, node_rule=NodeRule.LEAST_USED_ONLY)


POLICIES = (
    PolicySpec("drf", lambda _: Drf()),
    PolicySpec("fifo", lambda _: Fifo()),
    PolicySpec("srtf", lambda _: Srtf(FittedSpeeds())),
    PolicySpec("tetris", lambda _: Tetris(FittedSpeeds())),
    PolicySpec("optimus", lambda _: Optimus(FittedSpeeds())),
    PolicySpec("planner", lambda _: Planner(FittedSpeeds(optimism=EXPLORING))),
    _knowing("srtf-true", lambda speeds: Srtf(TrueSpeeds(speeds))),
    _knowing("tetris-true", lambda speeds: Tetris(TrueSpeeds(speeds))),
    _knowing("optimus-true", lambda speeds: Optimus(TrueSpeeds(speeds))),
    _knowing("planner-true", lambda speeds: Planner(TrueSpeeds(speeds))),
    _published("published-drf", lambda _: Drf(published=True)),
    _published("published-fifo", lambda _: Fifo(published=True)),
    _published("published-srtf", lambda speeds: Srtf(TrueSpeeds(speeds), published=True)),
    _published("published-tetris", lambda speeds: Tetris(TrueSpeeds(speeds), published=True)),
    _published("published-optimus", lambda speeds: Optimus(TrueSpeeds(speeds), published=True)),
)
"""All policies that have a name of their own; learnt ones and those of users are named by where they lie."""

POLICY_NAMES = tuple(spec.name for spec in POLICIES)
"""The names that `make_policy` knows beside learnt policies and those of users."""

LIVE_NAMES = tuple(spec.name for spec in POLICIES if spec.live)
"""The names that `make_live_policy` knows beside learnt policies and those of users."""

_SPECS = {spec.name: spec for spec in POLICIES}
_OTHERS = f"{DL2}PATH, MODULE:CLASS"
_SLOTS = {"slots": 1.0}
_ONE_JOB = Snapshot(0, 1.0, (Node("node", _SLOTS),), (JobState(Job("job", 0.0, "", 1.0, 1.0, _SLOTS, _SLOTS)),), ())


def make_policy(name: str, speeds: Speeds) -> AllocationPolicy:
    """Make a policy for simulations; it knows nothing yet, and what it fits to the reports of jobs is its own.

    Args:
        name: one of `POLICY_NAMES`; `-true` knows the true speeds, `published-` keeps the published code's faults. Or
            dl2:PATH, of a run's folder; or MODULE:CLASS, of a user's own.
        speeds: the true ones, in samples a second, for policies that may know them.

    Raises:
        BadInput: the name is unknown, or there is no learnt policy.
    """
    if name.startswith(DL2):
        return learnt(load(Path(name.removeprefix(DL2))))
    _refuse_chic(name)
    if is_own(name):
        return Simulated(name, make_own(name))
    if name not in _SPECS:
        raise BadInput(f"unknown policy {name}: give one of {', '.join(POLICY_NAMES)}, {_OTHERS}")
    return _SPECS[name].make(speeds)


def make_live_policy(name: str) -> AllocationPolicy:
    """Make a policy for a cluster whose jobs' true speeds nobody knows.

    A learnt policy has been compiled when it is returned: the first time after an installation that takes many seconds,
    which no slot is to wait for.

    Args:
        name: as for `make_policy`, but not of those that know the true speeds or keep the published code's faults.

    Raises:
        BadInput: it is one of those, unknown, or there is no learnt policy.
    """
    _refuse_chic(name)
    if is_own(name):
        return make_own(name)
    if name.startswith(DL2):
        policy = learnt(load(Path(name.removeprefix(DL2))))
        policy.allocate(_ONE_JOB, FreeResources(_ONE_JOB))
        return policy
    if name not in LIVE_NAMES:
        wrong = f"policy {name} is for simulations" if name in _SPECS else f"unknown policy {name}"
        raise BadInput(f"{wrong}: give one of {', '.join(LIVE_NAMES)}, {_OTHERS}")
    return _SPECS[name].make(Speeds({}))


def _refuse_chic(name: str) -> None:
    """Refuse a policy that cannot be asked at slots. Raises BadInput."""
    if name.startswith(CHIC):
        raise BadInput(
            f"{name} decides when a job arrives and when one ends, and here policies are asked at slots: it runs in "
            "dl2 simulate and dl2 evaluate with --pool"
        )


def rule_of(name: str, asked: NodeRule = NodeRule.SPREAD) -> NodeRule:
    """Return the rule by which a policy's tasks find their node: its own where it has one, else what was asked for."""
    spec = _SPECS.get(name)
    return asked if spec is None or spec.node_rule is None else spec.node_rule
