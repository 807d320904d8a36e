"""Policies by name."""

from collections.abc import Callable, Mapping
from pathlib import Path

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.free_resources import FreeResources, NodeRule
from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.jobs import Job, Node
from dl2_scheduler.cluster.snapshot import JobState, Snapshot
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.policies.learnt.dl2 import learnt, load
from dl2_scheduler.policies.names import DL2
from dl2_scheduler.policies.rules.drf import Drf
from dl2_scheduler.policies.rules.estimates import TrueSpeeds
from dl2_scheduler.policies.rules.fifo import Fifo
from dl2_scheduler.policies.rules.optimus import Optimus
from dl2_scheduler.policies.rules.planner import Planner
from dl2_scheduler.policies.rules.speed_fit import EXPLORING, FittedSpeeds
from dl2_scheduler.policies.rules.srtf import Srtf
from dl2_scheduler.policies.rules.tetris import Tetris
from dl2_scheduler.policies.user_policy import Simulated, is_own, make_own

_OTHERS = f"{DL2}PATH, MODULE:CLASS"
_PUBLISHED = "published-"
_TRUE = "-true"
_SLOTS = {"slots": 1.0}
_ONE_JOB = Snapshot(0, 1.0, (Node("node", _SLOTS),), (JobState(Job("job", 0.0, "", 1.0, 1.0, _SLOTS, _SLOTS)),), ())

_MAKERS: Mapping[str, Callable[[Speeds], AllocationPolicy]] = {
    "drf": lambda _: Drf(),
    "fifo": lambda _: Fifo(),
    "srtf": lambda _: Srtf(FittedSpeeds()),
    "tetris": lambda _: Tetris(FittedSpeeds()),
    "optimus": lambda _: Optimus(FittedSpeeds()),
    "planner": lambda _: Planner(FittedSpeeds(optimism=EXPLORING)),
    "srtf-true": lambda speeds: Srtf(TrueSpeeds(speeds)),
    "tetris-true": lambda speeds: Tetris(TrueSpeeds(speeds)),
    "optimus-true": lambda speeds: Optimus(TrueSpeeds(speeds)),
    "planner-true": lambda speeds: Planner(TrueSpeeds(speeds)),
    "published-drf": lambda _: Drf(published=True),
    "published-fifo": lambda _: Fifo(published=True),
    "published-srtf": lambda speeds: Srtf(TrueSpeeds(speeds), published=True),
    "published-tetris": lambda speeds: Tetris(TrueSpeeds(speeds), published=True),
    "published-optimus": lambda speeds: Optimus(TrueSpeeds(speeds), published=True),
}

POLICY_NAMES = tuple(_MAKERS)
"""Those that `make_policy` knows beside the learnt ones."""

LIVE_NAMES = tuple(name for name in POLICY_NAMES if not name.startswith(_PUBLISHED) and not name.endswith(_TRUE))
"""Those that need not know more than a live cluster tells."""


def make_policy(name: str, speeds: Speeds) -> AllocationPolicy:
    """A new policy, which knows nothing yet: what it fits to the reports of jobs is its own.

    Args:
        name: one of `POLICY_NAMES`; `-true` knows the true speeds, `published-` keeps the published code's faults. Or
            dl2:PATH, of a run's folder; or MODULE:CLASS, of somebody's own.
        speeds: the true ones, in samples a second, for those that may know them.

    Raises:
        BadInput: the name is unknown, or there is no learnt policy.
    """
    if name.startswith(DL2):
        return learnt(load(Path(name.removeprefix(DL2))))
    if is_own(name):
        return Simulated(name, make_own(name))
    if name not in _MAKERS:
        raise BadInput(f"unknown policy {name}: give one of {', '.join(POLICY_NAMES)}, {_OTHERS}")
    return _MAKERS[name](speeds)


def make_live_policy(name: str) -> AllocationPolicy:
    """A new policy for a cluster whose jobs' true speeds nobody knows.

    Args:
        name: as for `make_policy`, but not of those that know the true speeds or keep the published code's faults.

    Raises:
        BadInput: it is one of those, unknown, or there is no learnt policy.

    A learnt one is compiled when it is returned: the first time after an installation that takes many seconds, which
    no slot is to wait for.
    """
    if name not in LIVE_NAMES and not name.startswith(DL2) and not is_own(name):
        wrong = f"policy {name} is for simulations" if name in _MAKERS else f"unknown policy {name}"
        raise BadInput(f"{wrong}: give one of {', '.join(LIVE_NAMES)}, {_OTHERS}")
    policy = make_own(name) if is_own(name) else make_policy(name, Speeds({}))
    if name.startswith(DL2):
        policy.allocate(_ONE_JOB, FreeResources(_ONE_JOB))
    return policy


def rule_of(name: str, asked: NodeRule = NodeRule.SPREAD) -> NodeRule:
    """By which a policy's tasks find their node: what was asked for, but a published rule has its own."""
    return NodeRule.LEAST_USED_ONLY if name.startswith(_PUBLISHED) else asked
