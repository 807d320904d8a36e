"""This module makes the policies that decide about a pool, by their names: asked at slots, or at events."""

from collections.abc import Callable, Mapping

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.interfaces import AllocationPolicy
from dl2_scheduler.cluster.speeds import Speeds
from dl2_scheduler.policies.chic.policy import Chic
from dl2_scheduler.policies.chic.weights import load_chic
from dl2_scheduler.policies.learnt_names import CHIC, named_folder
from dl2_scheduler.policies.pool.at_events import AtEvents
from dl2_scheduler.policies.pool.roll_out import RollOut
from dl2_scheduler.policies.registry import make_policy
from dl2_scheduler.policies.rules.estimates import TrueSpeeds

EVENTS = "-events"
"""What the name of a policy ends with that is asked when a job arrives and when one ends, and not at slots."""

_PLANNERS: Mapping[str, Callable[[Speeds], AllocationPolicy]] = {
    "roll-out-true": lambda speeds: RollOut(TrueSpeeds(speeds)),
    "roll-out-pairs-true": lambda speeds: RollOut(TrueSpeeds(speeds), pairs=True),
}
POOL_NAMES = (f"{CHIC}PATH", *_PLANNERS, f"NAME{EVENTS}")
"""The names that `make_pool_policy` knows beside those of `make_policy`; NAME is one of these."""


def make_pool_policy(name: str, speeds: Speeds) -> AllocationPolicy:
    """Make a policy for the simulation of a pool; its trigger says when it is asked.

    Args:
        name: one of `POOL_NAMES`, or as for `make_policy`.
        speeds: the true ones, in samples a second, for policies that may know them: of Chic's those whose phases end
            where no job gets faster.

    Raises:
        BadInput: the name is unknown, or there is no learnt policy.
    """
    if name.startswith(CHIC):
        weights = load_chic(named_folder(name.removeprefix(CHIC)))
        return Chic(weights, TrueSpeeds(speeds) if weights.form.until_no_gain else None)
    if name in _PLANNERS:
        return _PLANNERS[name](speeds)
    if name.endswith(EVENTS) and ":" not in name:
        return AtEvents(make_pool_policy(name.removesuffix(EVENTS), speeds))
    try:
        return make_policy(name, speeds)
    except BadInput as error:
        if str(error).startswith("unknown policy"):
            raise BadInput(f"{error}; in a pool also {', '.join(POOL_NAMES)}") from error
        raise
