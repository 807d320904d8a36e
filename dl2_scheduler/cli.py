"""`dl2`: simulated and live clusters, learning. What a command does is in its file of `dl2_scheduler/commands`."""

from enum import IntEnum
from typing import Any

import typer
from typer.core import TyperGroup

from dl2_scheduler.cluster.errors import BadInput, SchedulerError
from dl2_scheduler.commands.bootstrap import bootstrap
from dl2_scheduler.commands.evaluate import evaluate
from dl2_scheduler.commands.figure import figure
from dl2_scheduler.commands.fit import fit
from dl2_scheduler.commands.jobs import jobs, status, submit, why
from dl2_scheduler.commands.learn import learn
from dl2_scheduler.commands.logs import logs
from dl2_scheduler.commands.operate import hold, release, scale, stop
from dl2_scheduler.commands.policy import end_shadow, show_policy, use_policy
from dl2_scheduler.commands.serve import serve
from dl2_scheduler.commands.simulate import simulate
from dl2_scheduler.commands.top import top
from dl2_scheduler.commands.trace import convert_trace, generate_trace, show_trace


class Exit(IntEnum):
    """Exit statuses of every command."""

    OK = 0
    FAILED = 1
    USAGE = 2
    INTERRUPTED = 130


class _Errors(TyperGroup):
    """What is wrong with a file or an option becomes one line on stderr."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Exit(Exit.INTERRUPTED) from None
        except BadInput as error:
            typer.echo(f"dl2: {error}", err=True)
            raise typer.Exit(Exit.USAGE) from None
        except SchedulerError as error:
            typer.echo(f"dl2: {error}", err=True)
            raise typer.Exit(Exit.FAILED) from None


def _group(text: str) -> typer.Typer:
    return typer.Typer(
        cls=_Errors,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        help=text,
    )


app = _group(
    "Schedule deep learning jobs: make traces of them, simulate a cluster, compare policies, learn one, run one."
)
traces = _group("Generate, convert and look at traces: the jobs that come to a cluster.")
traces.command("generate")(generate_trace)
traces.command("convert")(convert_trace)
traces.command("show")(show_trace)
app.add_typer(traces, name="trace")
app.command("simulate")(simulate)
app.command("evaluate")(evaluate)
app.command("bootstrap")(bootstrap)
app.command("figure")(figure)
app.command("fit")(fit)
app.command("learn")(learn)
app.command("serve")(serve)
app.command("submit")(submit)
app.command("jobs")(jobs)
app.command("status")(status)
app.command("why")(why)
app.command("top")(top)
app.command("logs")(logs)
app.command("hold")(hold)
app.command("release")(release)
app.command("scale")(scale)
app.command("stop")(stop)
policy = _group("Which policy decides in a running cluster, and which one beside it.")
policy.info.no_args_is_help = False
policy.callback(invoke_without_command=True)(show_policy)
policy.command("use")(use_policy)
policy.command("end-shadow")(end_shadow)
app.add_typer(policy, name="policy")


def main() -> None:
    """Entry point of `dl2`."""
    app(prog_name="dl2")
