"""This module is `dl2 policy`: it shows and changes which policy decides in a running cluster, and its shadow."""

from typing import Annotated

import typer

from dl2_scheduler.commands.cluster.jobs import client_of, dictionary
from dl2_scheduler.commands.common import Folder, Json, group, show_json
from dl2_scheduler.policies.learnt_names import absolute
from elastic_ps.system.terminal import say

policies = group("Show or change which policy decides in a running cluster, and which one decides beside it.")


@policies.callback(invoke_without_command=True)
def show_policy(context: typer.Context, folder: Folder = None, as_json: Json = False) -> None:
    """Show which policy decides and why, and how its shadow, the guard, learning and exploring go; `use` changes it."""
    if context.invoked_subcommand is not None:
        context.obj = folder  # given before the subcommand, it is meant there too
        return
    with client_of(folder) as client:
        found = client.policies()
    if as_json:
        show_json(dictionary(found))
        return
    shadow = found.shadow or "none"
    if found.shadow_agreement >= 0:
        shadow += f", which would have made {found.shadow_agreement:.0%} of the last 100 slots' grants too"
    lines = {
        "policy": found.policy,
        "deciding": found.deciding,
        "because": "; ".join(filter(None, (found.guard, found.stands_in))),
        "shadow": shadow,
        "guard": found.comparison or "has compared nothing yet: it compares learnt policies, dl2:PATH",
        "learning": found.learning or "off",
        "exploring": found.exploration,
        "sharing": found.sharing,
        "refit": found.refitting,
    }
    for name, value in lines.items():
        if value:
            say(f"{name:<10}{value}")


@policies.command("use")
def use_policy(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="drf, fifo, srtf, ..., or dl2:PATH of a run.")],
    shadow: Annotated[
        bool, typer.Option("--shadow", help="It decides beside the present one, without acting.")
    ] = False,
    folder: Folder = None,
) -> None:
    """Let a policy decide from the next slot on; the same one again: read anew, and trusted again by the guard."""
    with client_of(folder or context.obj) as client:
        if shadow:
            client.use_shadow(absolute(name))
        else:
            client.use_policy(absolute(name))
    say(f"{name}: from the next slot on it decides{' beside, without acting' if shadow else ''}")


@policies.command("end-shadow")
def end_shadow(context: typer.Context, folder: Folder = None) -> None:
    """Let no policy decide beside the present one any more."""
    with client_of(folder or context.obj) as client:
        client.use_shadow("")
    say("no policy decides beside any more")
