"""This module finds members that have other parameters frozen than the others: no sum has what they leave out."""

from collections.abc import Sequence

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.script_hints import FOLLOW_FROM_EPOCH
from elastic_ps.torch.allreduce.replica.replica import Replica
from elastic_ps.torch.allreduce.step_told import StepTold


def frozen_apart(told: Sequence[StepTold]) -> dict[int, int]:
    """Return the ranks of members that have a parameter frozen or not as the first one has not, and its number.

    A member that has no gradient otherwise adds zeros, rightly: its samples do not use the parameter.

    Args:
        told: by rank.
    """
    having = {rank: each for rank, each in enumerate(told) if any(each.present)}
    if len({each.frozen for each in having.values()}) <= 1:  # as in nearly every step
        return {}
    found: dict[int, int] = {}
    for number in range(len(told[0].present)):
        frozen = {rank: each.frozen[number] for rank, each in having.items()}
        if any(frozen.values()) and any(each.present[number] for each in having.values()):
            first = next(iter(frozen.values()))
            found = {rank: number for rank, flag in frozen.items() if flag is not first} | found
    return found


def refusal_of(replica: Replica, number: int) -> ConfigurationError:
    """Return what a member is told that has a parameter frozen, or not, as the first one has not.

    Args:
        replica: the member's.
        number: of the parameter.
    """
    name = next(key[2:] for key, found in replica.parameter_numbers.items() if found == number)
    here, there = ("trained", "frozen") if replica.parameters[number].requires_grad else ("frozen", "trained")
    return ConfigurationError(
        f"parameter {name} is {here} by this worker, and {there} by the chief. {FOLLOW_FROM_EPOCH}"
    )
