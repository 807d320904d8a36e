"""This module shows a job live, until it ends."""

import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from coordinator.client import AccessDenied, CoordinatorClient, CoordinatorUnreachable
from coordinator.ctl import render
from coordinator.ctl.job_folders import LocalJob
from coordinator.ctl.job_lookup import how_over
from coordinator.ctl.jsontext import to_dict
from coordinator.ctl.plan_wait import ENDED, Patience
from protos import elastic_pb2 as pb

_RECENT_PLANS = 5


class _View(Protocol):
    """A view takes each look at a job."""

    def show(self, status: pb.StatusReply, plans: list[pb.Plan]) -> None:
        """Show one look at the job."""

    def away(self, reason: str) -> None:
        """Say that the coordinator did not answer."""

    def over(self, job: LocalJob) -> None:
        """Say how the job ended, as its folder does."""


class _Screen:
    """A terminal shows the whole status, drawn again in place."""

    def __init__(self, live: Live):
        self._live = live
        self._last: RenderableType = Text("")

    def show(self, status: pb.StatusReply, plans: list[pb.Plan]) -> None:
        recent = plans[-_RECENT_PLANS:]
        self._last = Group(render.status_view(status), *([Text(), render.plan_table(recent)] if recent else []))
        self._live.update(self._last, refresh=True)

    def away(self, reason: str) -> None:
        self._live.update(Group(self._last, Text(f"waiting: {reason}", "yellow")), refresh=True)

    def over(self, job: LocalJob) -> None:
        self._live.update(Group(self._last, Text(how_over(job))), refresh=True)


class _Lines:
    """A pipe or a log gets a line whenever the job has moved."""

    def __init__(self, console: Console):
        self._console = console
        self._last = ""

    def show(self, status: pb.StatusReply, plans: list[pb.Plan]) -> None:
        del plans
        self._print(render.progress_line(status))

    def away(self, reason: str) -> None:
        self._print(f"waiting: {reason}")

    def over(self, job: LocalJob) -> None:
        self._print(how_over(job))

    def _print(self, line: str) -> None:
        if line != self._last:
            self._last = line
            self._console.print(line, soft_wrap=True)


class _Json:
    """A program reads one status a line."""

    def __init__(self, console: Console):
        self._console = console

    def show(self, status: pb.StatusReply, plans: list[pb.Plan]) -> None:
        del plans
        self._console.print(json.dumps(to_dict(status)), soft_wrap=True)

    def away(self, reason: str) -> None:
        self._console.print(json.dumps({"waiting": reason}), soft_wrap=True)

    def over(self, job: LocalJob) -> None:
        ended = {"ended": job.how_it_ended, "exit_status": job.status, "reason": job.reason}
        self._console.print(json.dumps(ended), soft_wrap=True)


def watch_job(
    client: CoordinatorClient,
    console: Console,
    interval: float,
    as_json: bool,
    over: Callable[[], LocalJob | None] = lambda: None,
) -> bool:
    """Show a job until it ends.

    Args:
        client: of the job.
        console: where to; on a terminal that cannot draw anew a line is printed whenever the job has moved.
        interval: seconds between two looks.
        as_json: one JSON document a line instead of a view.
        over: returns the job where its folder says that it is over: its coordinator goes with it, between two looks.

    Returns:
        Whether it finished well.

    Raises:
        CoordinatorUnreachable: the coordinator is gone for good.
    """
    redraws = console.is_terminal and not console.is_dumb_terminal  # on which rich shows nothing before the end
    live = Live(console=console, auto_refresh=False) if redraws and not as_json else None
    scope: AbstractContextManager[object] = live or nullcontext()
    view: _View = _Screen(live) if live else _Json(console) if as_json else _Lines(console)
    patience = Patience()
    with scope:
        while True:
            try:
                status, plans = client.status(), client.plans(latest=_RECENT_PLANS)
            except (CoordinatorUnreachable, AccessDenied) as error:  # another one may have its port by now
                if (ended := over()) is not None:
                    view.over(ended)
                    return not ended.status
                if isinstance(error, AccessDenied):
                    raise
                view.away(str(error))
                patience.away(error)
            else:
                patience.answered()
                view.show(status, plans)
                if status.phase in ENDED:
                    return status.phase == "finished"
            time.sleep(interval)
