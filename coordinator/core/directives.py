"""This module derives from the state what every node is told, and launchers.

Nothing in the core sends by itself: after each event `protocol.step` compares what stands for a node now with what
stood before, and sends the difference. A reconnect gets everything that stands, a tick what is still unanswered.
"""

from collections.abc import Iterator, Mapping

from coordinator.core.effects import (
    Adopt,
    Arm,
    Committed,
    Directive,
    Extend,
    Prepare,
    Resume,
    RunCommand,
    SaveBlocks,
    TryOptimizer,
    WantedProcesses,
    Welcome,
)
from coordinator.core.job import DurableJob, JobPhase, RegisteredNode, StopOrder
from coordinator.core.plans.plan import MigrationMode, Phase, Plan, PlanKind
from coordinator.core.plans.scale_goal import ScaleGoal
from coordinator.core.records import remembered
from coordinator.core.state import State
from elastic_ps.core.configuration import Configuration, NodeId, Role
from elastic_ps.core.data_order import DataSpec
from elastic_ps.core.model import Model


def standing(state: State, name: NodeId) -> tuple[Directive, ...]:
    """Return all that a node has to know now, in the order to send it, without the Welcome that opens a stream."""
    node = state.job.nodes.get(name)
    if node is None:
        return ()
    if node.stop is not None:
        return (node.stop,)
    return tuple(_standing(state, node))


def _standing(state: State, node: RegisteredNode) -> Iterator[Directive]:
    job = state.job
    if node.cancel is not None:
        yield node.cancel
    if node.departing and not node.left:
        return
    plan = job.plan
    if job.configuration is not None and (node.left or (node.id in job.members and not switching(plan))):
        yield Committed(job.configuration.id)
    if plan is not None and node.id in plan.audience:
        yield from _of_plan(state, plan, node)
    yield from _of_growth(state, node)


def switching(plan: Plan | None) -> bool:
    """Return whether nodes may be in different configurations: the plan, or one that it has absorbed, is armed."""
    return plan is not None and (plan.phase is Phase.ARMED or bool(plan.absorbed))


def _of_plan(state: State, plan: Plan, node: RegisteredNode) -> Iterator[Directive]:
    assert plan.target is not None
    answers = state.answers
    if plan.phase is not Phase.ARMED:
        if node.id not in answers.prepared:
            if node.id in plan.joiners:
                yield welcome(state)
            yield Prepare(plan.target, plan.migration, tuple(sorted(plan.dead)), plan.restore, plan.asks)
        return
    if plan.decided:
        if node.id not in answers.switched or node.id in awaited_copies(state, plan):
            yield Adopt(plan.number, plan.target if plan.asks else None, plan.promoted)
    elif not answers.until and plan.clock is not None and node.id not in answers.switched:
        yield Arm(plan.number, plan.clock)
    pausing = plan.migration is MigrationMode.PAUSE and plan.kind is PlanKind.SCALE and node.role is Role.WORKER
    if pausing and landed(state) and not awaited_arrivals(state, plan):
        yield Resume(plan.number)


def awaited_arrivals(state: State, plan: Plan) -> frozenset[NodeId]:
    """Return new owners that do not hold all their blocks yet: old owners keep theirs, and the way to them, until then.

    A worker's version does not tell: where a plan was armed too late, all are past its clock when they switch.
    """
    return plan.receivers - state.answers.arrived


def awaited_followers(state: State, plan: Plan) -> frozenset[NodeId]:
    """Return owners whose new followers may not have all that anybody has seen."""
    return plan.followed - state.answers.followed


def awaited_copies(state: State, plan: Plan) -> frozenset[NodeId]:
    """Return whose blocks would suffer if copies of them were dropped now."""
    return awaited_arrivals(state, plan) | awaited_followers(state, plan)


def awaited_steps(state: State, plan: Plan) -> frozenset[NodeId]:
    """Return the workers that have not made a step behind the switch: till then what old owners hold is in use.

    A script reads the values of the version that it switched at there, its worker makes the next ones of them where
    only some rows change, and sends gradients of that version again.
    """
    if plan.clock is None or plan.target is None:
        return frozenset()
    past = {name for name, vitals in state.vitals.items() if vitals.version > plan.clock}
    return frozenset(plan.target.ranks.keys() - state.job.finished - past)


def has_handed_over(state: State, name: NodeId) -> bool:
    """Return whether a node that leaves by the armed plan has done its part: who takes over its blocks holds them.

    That it has switched says only that it has sent them. They may be lost on the way, and with its end for good.
    """
    plan, answers = state.job.plan, state.answers
    if plan is None or plan.phase is not Phase.ARMED or name not in plan.leavers or name not in answers.switched:
        return False
    return {new for old, new in plan.hand_overs if old == name} <= answers.arrived


def awaited_to_sync(job: DurableJob, plan: Plan) -> frozenset[NodeId]:
    """Return who has to catch up before the plan can be armed: joining workers; if live, servers that gain copies."""
    joining = frozenset(name for name in plan.joiners if name in job.nodes and job.nodes[name].role is Role.WORKER)
    return joining | (plan.copiers if plan.migration is MigrationMode.LIVE else frozenset())


def landed(state: State) -> bool:
    """Return whether everyone who is alive has switched, so that the plan's target is in force."""
    plan = state.job.plan
    return plan is not None and plan.phase is Phase.ARMED and state.job.configuration == plan.target


def _of_growth(state: State, node: RegisteredNode) -> Iterator[Directive]:
    job = state.job
    if is_unextended(state, node.id):
        assert job.configuration is not None
        yield _extend(job.configuration, job.model, job.optimizers, job.data, job.growth)
    if node.id not in job.members:
        return
    saving = state.saving
    is_saver = saving is not None and node.id in job.holders - saving.saved.keys()
    if saving is not None and is_saver and saving.clock is not None and not saving.writing:
        yield SaveBlocks(saving.clock, saving.url, saving.given_up)
    if node.role is not Role.SERVER:
        return
    for trial in state.trials:
        if node.id not in trial.answers:
            yield TryOptimizer(trial.optimizer, trial.dtypes)
    for run in state.running:
        if node.id in run.waiting:
            yield RunCommand(run.id, run.head, run.body)


@remembered
def _extend(
    configuration: Configuration, model: Model, optimizers: tuple[str, ...], data: DataSpec | None, growth: int
) -> Extend:
    """Return one object for all nodes: it is encoded once, and may hold thousands of tensors."""
    return Extend(
        configuration.id,
        model.tensors,
        configuration.assignment,
        optimizers,
        data,
        configuration.followers,
        growth,
    )


def unextended(state: State) -> frozenset[NodeId]:
    """Return the nodes that have not confirmed all that is declared."""
    return frozenset(name for name in state.job.nodes if is_unextended(state, name))


def is_unextended(state: State, name: NodeId) -> bool:
    """Return whether a node, which is registered, has not confirmed all that is declared.

    An Extend is about the configuration in force, so none is sent while a switch is half done, and no plan is assigned
    while one is unanswered. One that was sent again on a new stream, and whose answer came from the old one, may arrive
    behind the switch: the node drops it, and has known all of it before. A job that looks for its checkpoint may have
    dropped such a plan, and nobody goes on from what is in force.
    """
    job = state.job
    if name in state.extended or name in job.finished or not (name in state.welcomed or name in job.members):
        return False
    if job.nodes[name].departing:  # it is told of its end alone
        return False
    in_force = job.configuration is not None and bool(job.model.tensors) and not job.loading
    return in_force and (not switching(job.plan) or landed(state))


def welcome(state: State) -> Welcome:
    """Return what is in force. After a restore the declarations come before the configuration."""
    job = state.job
    return _welcome(
        job.configuration, job.model, job.optimizers, job.data, job.identity, job.begun, job.saves, job.since
    )


@remembered
def _welcome(
    configuration: Configuration | None,
    model: Model,
    optimizers: tuple[str, ...],
    data: DataSpec | None,
    identity: str,
    begun: str,
    saves: int,
    since: float,
) -> Welcome:
    """Return one object for all nodes, as `_extend` does: all may come at once."""
    return Welcome(configuration, model.tensors, optimizers, data, identity, begun, saves, since)


def owed(state: State, name: NodeId) -> tuple[Directive, ...]:
    """Return the directives that stand and have not been answered."""
    # one Extend and one Try per stream: see `unextended`; one Run, as a handler takes as long as it likes
    answered: tuple[type, ...] = (Committed, Resume, StopOrder, Extend, TryOptimizer, RunCommand)
    if name in state.answers.armed:
        answered = (*answered, Arm)
    return tuple(directive for directive in standing(state, name) if not isinstance(directive, answered))


def plan_of(state: State, directive: Directive) -> int:
    """Return the id of the plan that a directive belongs to; 0 where it belongs to none."""
    plan = state.job.plan
    return plan.id if plan is not None and isinstance(directive, Prepare | Arm | Adopt | Resume) else 0


def wanted(job: DurableJob) -> WantedProcesses:
    """Return what launchers have to bring about."""
    leavers = job.plan.leavers if job.plan is not None else ()
    ends = job.finished, leavers, job.expelled, job.evicted
    return _wanted(job.phase, job.reason, job.goal, job.nodes, job.configuration, *ends)


@remembered
def _wanted(
    phase: JobPhase,
    reason: str,
    goal: ScaleGoal,
    nodes: Mapping[NodeId, RegisteredNode],
    in_force: Configuration | None,
    finished: frozenset[NodeId],
    leavers: tuple[NodeId, ...],
    expelled: tuple[str, ...],
    evicted: tuple[str, ...],
) -> WantedProcesses:
    alive = [node for node in nodes.values() if node.stop is None]
    quiet = phase.ended or bool(finished) or phase is JobPhase.REBUILDING

    def starting(role: Role) -> int:
        present = sum(node.role is role and not node.departing and node.id not in goal.drains for node in alive)
        return 0 if quiet else max(0, goal.count(role) - present)

    leaving = {node.id for node in alive if node.departing} | ((goal.drains | set(leavers)) & nodes.keys())
    return WantedProcesses(
        workers=goal.workers,
        servers=goal.servers,
        starting_workers=starting(Role.WORKER),
        starting_servers=starting(Role.SERVER),
        leaving=tuple(sorted(leaving)),
        nodes=tuple(nodes),
        nonces=tuple(node.nonce for node in nodes.values()),
        joining=tuple(node for node in nodes if in_force is None or node not in in_force.members),
        expelled=expelled,
        evicted=evicted,
        restarting=tuple(node.nonce for node in nodes.values() if node.stop is not None and node.stop.restart),
        ended=phase.ended,
        failed=phase is JobPhase.FAILED,
        reason=reason,
    )
