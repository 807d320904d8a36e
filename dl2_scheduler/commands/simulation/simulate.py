"""This module is `dl2 simulate`: it runs one policy on one trace."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.commands.common import Json, new_table, show, show_json
from dl2_scheduler.commands.simulation.placed import PlacedQuestion, simulate_in_world
from dl2_scheduler.commands.simulation.pool import PoolOptions, pool_question, simulate_in_pool
from dl2_scheduler.commands.simulation.replay import replay
from dl2_scheduler.commands.simulation.setting_options import check_setting_options
from dl2_scheduler.commands.simulation.simulated import SimulationOptions, is_given
from dl2_scheduler.commands.simulation.world_options import WorldOptions
from dl2_scheduler.policies.registry import make_policy, rule_of
from dl2_scheduler.sim.history import Recording, write_history
from dl2_scheduler.sim.lanes import ScalingCost
from dl2_scheduler.sim.metrics import Summary, summarise
from dl2_scheduler.sim.record import Record, record
from dl2_scheduler.sim.simulator import SimulatedCluster
from dl2_scheduler.sim.trace import read_lines
from elastic_ps.system.option_groups import grouped
from elastic_ps.system.terminal import say

_HOUR = 3600.0
_COSTS = {"start_cost": "start", "change_cost": "change", "join_cost": "join"}
_OF_HISTORIES = frozenset({"policy", "placement", "from_history", *_COSTS, "as_json"})


@grouped
def simulate(
    context: typer.Context,
    policy: Annotated[str | None, typer.Option(help="Name of the policy; a wrong one lists them all.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Jobs.")] = None,
    from_history: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Of a live cluster: ask again what it decided.")
    ] = None,
    *,
    simulated: SimulationOptions,
    placed: WorldOptions,
    pooled: PoolOptions,
    keep: Annotated[Path | None, typer.Option("--record", help="Write what was decided, for dl2 bootstrap.")] = None,
    as_json: Json = False,
) -> None:
    """Run a policy on a trace until every job has ended, or ask it what it would have done in a live cluster.

    With --world it is a placement policy that is run, in a cluster in which speeds depend on places; with --pool a
    policy may be asked when jobs arrive and end.
    """
    check_setting_options(context, placed.world is not None, pooled.pool is not None)
    if placed.world is not None:
        simulate_in_world(PlacedQuestion(placed, simulated.cluster, simulated.placement, policy, as_json))
        return
    if pooled.pool is not None:
        simulate_in_pool(pool_question(context, pooled, simulated, placed.seeds, policy, as_json))
        return
    if from_history is not None:
        _check_replay(context)
        replay(from_history, policy, simulated.rule, _given(context, simulated.cost), as_json)
        return
    if policy is None or trace is None:
        raise BadInput("give --policy and --trace, or --from-history, or --world, or --pool")
    lines = read_lines(trace)
    setting = simulated.setting(lines)
    decides, rule = make_policy(policy, setting.speeds), rule_of(policy, simulated.rule)
    recording = Recording(decides) if keep else None  # it keeps every slot with all that the policy saw
    where = setting.nodes, setting.speeds, setting.slot_seconds, setting.cost, setting.variation
    run = record(SimulatedCluster(list(lines.values()), *where), recording or decides, rule)
    if keep and recording:
        write_history(keep, recording.decisions)
    summary = summarise(run, setting.speeds, setting.variation)
    if as_json:
        asked = {"policy": policy, "trace": str(trace), "nodes": len(setting.nodes), "cost": asdict(setting.cost)}
        show_json({**asked, **_document(run, summary)})
    else:
        nodes, slot = len(setting.nodes), setting.slot_seconds
        say(f"{policy} on {trace}: {summary.jobs} jobs, {nodes} nodes, slots of {slot:g} s")
        _print(summary)


def _check_replay(context: typer.Context) -> None:
    """Refuse options that a history leaves no choice of. Raises BadInput."""
    for name in context.params:
        if name not in _OF_HISTORIES and is_given(context, name):
            option = "record" if name == "keep" else name.replace("_", "-")
            raise BadInput(f"--{option}: a history has its own: leave it out with --from-history")


def _given(context: typer.Context, cost: ScalingCost) -> dict[str, float]:
    """Return the costs that were given, by their fields; the others are as in the history."""
    return {field: getattr(cost, field) for option, field in _COSTS.items() if is_given(context, option)}


def _print(summary: Summary) -> None:
    table = new_table(of_jobs=False, mean=True, median=True, p95=True)
    for unit, spread, part in (("slots", summary.jct_slots, 1.0), ("hours", summary.jct_seconds, _HOUR)):
        cells = (f"{value / part:.2f}" for value in (spread.mean, spread.median, spread.p95))
        table.add_row(f"completion time, {unit}", *cells)
    show(table)
    used = ", ".join(f"{name} {part:.0%}" for name, part in summary.utilisation.items())
    say(
        f"makespan {summary.makespan_slots:.1f} slots; used: {used}; fairness {summary.fairness:.3f}; "
        f"{summary.scalings:.3f} scalings a job and slot"
    )


def _document(run: Record, summary: Summary) -> dict[str, Any]:
    jobs = [
        {
            "id": job.id,
            "model": job.model,
            "arrival_seconds": job.arrival,
            "finish_seconds": float(run.finish[number]) * run.slot_seconds,
            "jct_slots": float(run.finish[number] - run.arrival[number]),
        }
        for number, job in enumerate(run.jobs)
    ]
    return {"slot_seconds": run.slot_seconds, "numbers": summary.values(), "jobs": jobs}
