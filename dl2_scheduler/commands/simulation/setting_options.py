"""This module refuses options that do not belong together: of traces, of a world of places, of a pool."""

from collections.abc import Collection
from dataclasses import fields

import typer

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.commands.simulation.pool import PoolOptions
from dl2_scheduler.commands.simulation.simulated import is_given
from dl2_scheduler.commands.simulation.world_options import WorldOptions

_OF_WORLDS = frozenset(field.name for field in fields(WorldOptions))
_OF_POOLS = frozenset(field.name for field in fields(PoolOptions))
_OF_ALL = frozenset({"policy", "policies", "with_bounds", "as_json"})
_OF_BOTH = frozenset({"sequences", "seed"})
_SPELT = {"keep": "record", "with_bounds": "bounds"}


def check_setting_options(context: typer.Context, in_world: bool, in_pool: bool) -> None:
    """Refuse options that do not belong together.

    Args:
        context: of the command.
        in_world: whether `--world` is given.
        in_pool: whether `--pool` is given.

    Raises:
        BadInput: an option of a world or a pool stands without one, or one of traces beside it.
    """
    given = [name for name in context.params if is_given(context, name)]
    if in_world and in_pool:
        raise BadInput("--world, --pool: one has places, the other has none: give one of them")
    if in_world:
        allowed = _OF_WORLDS | _OF_ALL | {"placement", "cluster"}
        _refuse(given, allowed, "a world has its own: leave it out with --world")
    elif in_pool:
        allowed = _OF_POOLS | _OF_ALL | _OF_BOTH | {"speeds", "slot", "start_cost", "change_cost"}
        _refuse(given, allowed, "a pool has its own, or none: leave it out with --pool")
    else:
        of_both, of_none = frozenset(context.params) - _OF_BOTH, frozenset(context.params)
        _refuse(given, of_both, "of a world or a pool: give --world or --pool too, or leave it out")
        _refuse(given, of_none - _OF_WORLDS, "of a world alone: give --world too, or leave it out")
        _refuse(given, of_none - _OF_POOLS, "of a pool alone: give --pool too, or leave it out")


def _refuse(given: Collection[str], allowed: Collection[str], why: str) -> None:
    wrong = ["--" + _SPELT.get(name, name).replace("_", "-") for name in given if name not in allowed]
    if wrong:
        raise BadInput(f"{', '.join(wrong)}: {why}")
