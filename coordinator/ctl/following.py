"""An operator who has asked for other nodes reads what that needs, how it goes on, and what has come of it."""

import typer

from coordinator.client import CoordinatorClient
from coordinator.ctl import render
from coordinator.ctl.answering import Exit, note, result
from coordinator.ctl.jsontext import to_dict
from coordinator.ctl.plan_wait import wait_for_plan
from elastic_ps.system.terminal import Terminal
from protos import elastic_pb2 as pb

_NOTHING = "nothing to do: the job is as you want it"


def follow(client: CoordinatorClient, reply: pb.ScaleReply, detach: bool, as_json: bool) -> None:
    """Say what a request needs, wait for the end of its plan and print it.

    Args:
        client: of the job.
        reply: to the request.
        detach: do not wait.
        as_json: print for programs.
    """
    show_lines(reply, as_json)
    unplanned = {**to_dict(reply), "outcome": None}
    if not reply.plan and not reply.queued:
        result(as_json, unplanned, render.let_go(reply) if reply.leaving else _NOTHING)
        return
    waits = render.accepted(reply)
    if detach:
        result(as_json, unplanned, waits)
        return
    note(waits)
    try:
        plan = wait_for_plan(client, reply.request, lambda plan: note(render.plan_line(plan)))
    except KeyboardInterrupt:
        note("the plan goes on without you; `elasticctl cancel` stops one that is not armed yet")
        raise
    if plan is None:
        result(as_json, unplanned, _NOTHING)
        return
    result(as_json, {**unplanned, "outcome": to_dict(plan)}, render.plan_result(plan))
    if plan.phase != "COMMITTED" or plan.missing:
        raise typer.Exit(Exit.FAILED)


def show_lines(reply: pb.ScaleReply, as_json: bool) -> None:
    """Print the commands that a person has to run, where no launcher is attached."""
    if reply.lines:
        Terminal(stderr=as_json).print(render.launch_lines(reply.lines), soft_wrap=True)
