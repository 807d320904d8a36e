"""This module is `dl2`, the command of the scheduler; each command is in a file of `dl2_scheduler/commands`."""

import errno
import os
import sys
from collections.abc import Iterator, Mapping
from enum import IntEnum
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import typer
from typer.main import get_command

from dl2_scheduler.cluster.errors import BadInput, SchedulerError
from dl2_scheduler.commands.common import group
from elastic_ps.system.last_resort import one_sentence
from elastic_ps.system.option_checks import CarefulGroup
from elastic_ps.system.terminal import say

_PLACES = {
    "simulate": "simulation.simulate:simulate",
    "evaluate": "simulation.evaluate:evaluate",
    "bootstrap": "simulation.learning.bootstrap:bootstrap",
    "figure": "simulation.figure:figure",
    "fit": "cluster.fit:fit",
    "learn": "simulation.learning.learn:learn",
    "learn-chic": "simulation.learning.learn_chic:learn_chic",
    "learn-agents": "simulation.learning.learn_agents:learn_graph_agents",
    "learn-placement": "simulation.learning.learn_placement:learn_placement",
    "serve": "cluster.serving.serve:serve",
    "submit": "cluster.submit:submit",
    "jobs": "cluster.jobs:jobs",
    "status": "cluster.jobs:status",
    "why": "cluster.jobs:why",
    "top": "cluster.top:top",
    "what-if": "cluster.what_if:what_if",
    "logs": "cluster.logs:logs",
    "hold": "cluster.operate:hold",
    "release": "cluster.operate:release",
    "scale": "cluster.operate:scale",
    "stop": "cluster.operate:stop",
    "trace": "simulation.trace:traces",
    "policy": "cluster.policy:policies",
}
"""Of each command: its file in `commands`, and what it is there: a function, or a group."""


class ExitStatus(IntEnum):
    """An `ExitStatus` is one of those that every command ends with."""

    OK = 0
    FAILED = 1
    USAGE = 2
    INTERRUPTED = 130


class _Commands(Mapping[str, Any]):
    """`_Commands` are imported when they are asked for: `dl2 jobs` does not wait for what simulating needs."""

    def __getitem__(self, name: str) -> Any:
        file, _, attribute = _PLACES[name].partition(":")
        found = getattr(import_module(f"dl2_scheduler.commands.{file}"), attribute)
        if not isinstance(found, typer.Typer):
            alone = group("")
            alone.command(name)(found)
            found = alone
        return get_command(found)

    def __iter__(self) -> Iterator[str]:
        return iter(_PLACES)

    def __len__(self) -> int:
        return len(_PLACES)


class _Dl2(CarefulGroup):
    """`_Dl2` makes one line on stderr of what is wrong with a file or an option."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = cast(Any, _Commands())

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Exit(ExitStatus.INTERRUPTED) from None
        except BadInput as error:
            say(f"dl2: {error}", err=True)
            raise typer.Exit(ExitStatus.USAGE) from None
        except SchedulerError as error:
            say(f"dl2: {error}", err=True)
            raise typer.Exit(ExitStatus.FAILED) from None
        except OSError as error:
            if error.errno == errno.EPIPE:  # as in `| head`; typer ends without a word
                raise
            say(f"dl2: {error.filename or 'reading or writing failed'}: {error.strerror}", err=True)
            raise typer.Exit(ExitStatus.FAILED) from None


app = group(
    "Schedule deep learning jobs: make traces of them, simulate a cluster, compare policies, learn one, run one.",
    cls=_Dl2,
    no_args_is_help=True,
)


@app.callback()
def _dl2() -> None:
    pass


def main() -> None:
    """Run `dl2`."""
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115  # None where the caller has closed it
    with one_sentence("dl2"):
        app(prog_name="dl2")
