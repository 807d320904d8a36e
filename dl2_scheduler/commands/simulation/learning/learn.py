"""This module is `dl2 learn`: it improves a bootstrapped policy by online reinforcement learning."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.commands.common import new_table, show
from dl2_scheduler.commands.progress import new_progress
from dl2_scheduler.commands.simulation.learning.bootstrap import NetworkKind
from dl2_scheduler.commands.simulation.simulated import known_speeds
from dl2_scheduler.sim.arrivals import Pattern
from dl2_scheduler.sim.lanes import ScalingCost
from dl2_scheduler.sim.trace import parse_cluster
from elastic_ps.system.terminal import say

if TYPE_CHECKING:
    from dl2_scheduler.learning.lessons import Lessons
    from dl2_scheduler.learning.online import Online
    from dl2_scheduler.learning.paper.online import PaperOnline
    from dl2_scheduler.learning.run_folder import RunFolder

_MOST_MINUTES = 366 * 24 * 60.0
_JUDGED = "the policy is judged"
_LEARNING = "online"  # key of its settings
_SHORTAGE = "shortage"  # and of what the last learning lacked


def learn(
    start: Annotated[
        Path, typer.Option("--from", metavar="RUN", help="Run of `dl2 bootstrap`, which is gone on with.")
    ],
    out: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Leave RUN as it is, and write here.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the learning that RUN holds.")] = False,
    minutes: Annotated[float, typer.Option(min=0.0, max=_MOST_MINUTES, help="From now on.")] = 30.0,
    updates: Annotated[int | None, typer.Option(min=1, help="In all; whichever comes first.")] = None,
    published: Annotated[
        bool, typer.Option("--published", help="The paper's network learns as its published code does.")
    ] = False,
) -> None:
    """Improve a policy by what its own decisions lead to, on simulated clusters."""
    from dl2_scheduler.learning.run_folder import RunFolder  # torch takes seconds to import

    before = RunFolder(start)
    told = before.settings()
    if resume != (_LEARNING in told) and (resume or out is None):
        wanted = "begin it without --resume" if resume else "go on with it by --resume, or name another folder by --out"
        raise BadInput(f"{start} holds {'no' if resume else 'some'} learning: {wanted}")
    if resume and out is not None:
        raise BadInput("--resume goes on in the folder of the run: leave out --out")
    if not resume:
        before.checkpoint()  # what is wrong is told before anything is written
    if published and (resume or told.get("network") != NetworkKind.PAPER):
        raise BadInput("--published is for the start of learning of dl2 bootstrap --network paper")
    folder = before if out is None else RunFolder(out)
    with folder.held():
        run = _run(told, before, None) if resume else _begun(told, before, folder, published)
        _improve(run, folder, 60 * minutes, updates)


def _improve(run: "Online | PaperOnline", folder: "RunFolder", seconds: float, updates: int | None) -> None:
    """Go on with a run, in its folder, which is held, and say what came of it."""
    from dl2_scheduler.learning.enough import Stopwatch, at_rest
    from dl2_scheduler.learning.paper.online import PaperOnline

    def takes(judged: list[float]) -> list[float]:
        """Return the times of the policy that is kept: that of the paper was selected by those that judging gave."""
        return run.tested() if isinstance(run, PaperOnline) else judged

    told = folder.settings()
    with new_progress() as progress:
        progress.tell(_JUDGED, 0, 2, {})
        first = takes(run.judge())
        made, watch = run.updates, Stopwatch()
        run.run(seconds, updates, progress.tell)
        lacking = watch.shortage(run.updates, updates, run.updates - made)
        progress.tell(_JUDGED, 1, 2, {})
        last = run.judge()
        kept = takes(last)
        progress.tell(_JUDGED, 2, 2, {})
    best = run.best if isinstance(run, PaperOnline) else None
    table = new_table(cluster=False, before=True, now=True, difference=True)
    for name, was, now in zip(told["clusters"], first, kept, strict=True):
        table.add_row(name, f"{was:.2f}", f"{now:.2f}", f"{now / was - 1:+.1%}")
    show(table)
    of_last = (
        f"It is the best that was judged, on others, where it takes {_joined(best)} and the last one {_joined(last)}. "
        if best
        else ""
    )
    say(
        f"{run.updates} updates. Mean completion times in slots, on sequences it did not learn from. {of_last}"
        f"Use it as --policy dl2:{folder.path}"
    )
    if told["network"] == NetworkKind.PAPER or at_rest(folder.path / "learning.csv"):
        lacking = None
    folder.write_settings({**told, _SHORTAGE: lacking and lacking.as_dict()})
    if lacking is not None:
        say(lacking.sentence(folder.path))


def _joined(times: Sequence[float]) -> str:
    return ", ".join(f"{time:.2f}" for time in times)


def _begun(
    told: Mapping[str, Any], before: "RunFolder", folder: "RunFolder", published: bool
) -> "Online | PaperOnline":
    from dl2_scheduler.learning.online import OnlineSettings
    from dl2_scheduler.learning.paper.settings import PUBLISHED, PaperSettings

    of_paper = PUBLISHED if published else PaperSettings()
    settings = of_paper if told["network"] == NetworkKind.PAPER else OnlineSettings()
    whole = {**told, _LEARNING: asdict(settings)}
    if folder is not before:
        whole["from"] = str(before.path)
        folder.begin(whole)
    run = _run(whole, folder, before)
    run.save()
    folder.write_settings(whole)  # last: what they name can be gone on with
    return run


def _run(told: Mapping[str, Any], folder: "RunFolder", start: "RunFolder | None") -> "Online | PaperOnline":
    """Make the run as `_made` does. Raises BadInput: the settings are damaged."""
    try:
        return _made(told, folder, start)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        where = (start or folder).path / "settings.json"
        raise BadInput(f"{where} is damaged, or of another version: {error!r}: make the run anew") from error


def _made(told: Mapping[str, Any], folder: "RunFolder", start: "RunFolder | None") -> "Online | PaperOnline":
    """Make a run of the kind of network that its settings name.

    Args:
        told: settings of the run.
        folder: the folder of the run.
        start: see `Online`.
    """
    from dl2_scheduler.learning.online import Online, OnlineSettings
    from dl2_scheduler.learning.paper.online import PaperOnline
    from dl2_scheduler.learning.paper.settings import PaperSettings

    lessons, speeds = _lessons(told), known_speeds(Path(told["speeds"]) if told["speeds"] else None)
    if told["network"] == NetworkKind.PAPER:
        return PaperOnline(folder, lessons, speeds, PaperSettings(**told[_LEARNING]), start)
    return Online(folder, lessons, speeds, OnlineSettings.of(told[_LEARNING]), start)


def _lessons(told: Mapping[str, Any]) -> "Lessons":
    from dl2_scheduler.learning.lessons import Lessons

    nodes = tuple(parse_cluster(text) for text in told["clusters"])
    patterns = tuple(map(Pattern, told["patterns"]))
    without = told.get("without_servers", 0.0)  # earlier releases had none
    return Lessons(
        nodes, told["jobs"], patterns, told["seed"], cost=ScalingCost(**told["cost"]), without_servers=without
    )
