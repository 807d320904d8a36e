"""Scripts declare tensors, optimizers and data, and servers confirm them; all of it only grows. See
docs/reference/protocol.md.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace

from coordinator.core import replies
from coordinator.core.callers import Declaration, UnconfirmedDeclaration
from coordinator.core.directives import landed
from coordinator.core.effects import Why
from coordinator.core.events import Declared
from coordinator.core.job import DurableJob
from coordinator.core.node_answers import Extended
from coordinator.core.optimizer_trials import passed
from coordinator.core.plans.best_fit import extend
from coordinator.core.plans.cancelling import cancel
from coordinator.core.plans.next_configuration import grown_followers, sizes
from coordinator.core.plans.plan import Phase, PlanKind
from coordinator.core.step_context import StepContext
from elastic_ps.core.data_order import DataSpec
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.optimizer import OptimizerSpec
from elastic_ps.core.script_hints import OPTIMIZER_ON_SERVERS

_SAID = {"exchanges": "exchanges of a step", "global_batch": "batch size"}
"""Of settings whose names in scripts are others."""

MOST_STORES = 1024
"""Key stores of one script; a larger number is a mistake."""

MOST_BLOCKS = 1 << 20
"""Blocks of a job: 4 TiB in blocks of the default size. Each takes memory of the coordinator and of all servers."""


def on_declared(context: StepContext, event: Declared) -> None:
    """Take what a script declares. It waits until every server knows it, unless it has been told to end."""
    if context.turns_away(event.to, event.node):
        return
    waiting = Declaration(
        event.to, event.node, event.tensors, event.store, event.optimizer, event.data, event.local_update
    )
    context.live(declarations=(*context.state.declarations, waiting))


def on_extended(context: StepContext, event: Extended) -> None:
    """Note that a node knows what is declared. An Extend sent twice is answered twice, maybe past the next growth."""
    if event.growth == context.job.growth:
        context.live(extended=context.state.extended | {event.node})


def declare(context: StepContext) -> bool:
    """Take what was declared, and tried, into the job, once no switch is half done and the last growth is known."""
    state, plan = context.state, context.job.plan
    if not state.declarations or context.job.loading:
        return False
    if context.job.dead:  # a plan without them is next: its tables would have blocks that no server has heard of
        return False
    if plan is not None and plan.phase is Phase.ARMED and not landed(state) and not plan.decided:
        context.replan(decided=True)  # scripts wait for their answer, so the clock's version would not come
        return True
    if plan is not None and not landed(state) and (plan.kind is not PlanKind.SCALE or plan.phase is Phase.ARMED):
        return False
    if state.told or context.job.configuration is None:
        return False
    ready = [declaration for declaration in state.declarations if passed(state, declaration)]
    if not ready:
        return False
    grown = context.job
    told = []
    for declaration in ready:
        try:
            grown, warnings = merge(grown, declaration, state.settings.replicas)
            told.append(UnconfirmedDeclaration(declaration.to, warnings))
        except ConfigurationError as error:
            context.refuse(declaration.to, str(error), Why.INVALID)
    left = tuple(declaration for declaration in state.declarations if declaration not in ready)
    context.live(declarations=left, told=tuple(told))
    if grown is not context.job:
        _grow(context, grown)
    return True


def _grow(context: StepContext, grown: DurableJob) -> None:
    if context.job.plan is not None and context.job.plan.open_ended:
        cancel(context, "the script declared new tensors or settings; it is planned again with them")
    plan, configuration = context.job.plan, grown.configuration
    if plan is not None and plan.phase is Phase.ARMED:  # it has landed: the target is in force, and grows with it
        plan = replace(plan, target=configuration)
    context.durable(
        model=grown.model,
        optimizers=grown.optimizers,
        data=grown.data,
        local_update=grown.local_update,
        configuration=configuration,
        growth=context.job.growth + 1,
        plan=plan,
    )
    context.live(extended=frozenset(), grown_at=context.now)
    saving = context.state.saving
    if saving is not None and not saving.writing:
        context.live(saving=replace(saving, clock=None, saved={}))


def confirm(context: StepContext) -> bool:
    """Answer scripts that have declared something, once every server knows it."""
    job, state = context.job, context.state
    if not state.told or job.configuration is None:
        return False
    if not {server.id for server in job.configuration.servers} <= state.extended:
        return False
    known = replies.DeclareReply(job.model.tensors, job.configuration.assignment, job.optimizers)
    for told in state.told:
        context.reply(told.to, replace(known, warnings=told.warnings))
    context.live(told=())
    return True


def merge(job: DurableJob, declaration: Declaration, replicas: int = 0) -> tuple[DurableJob, tuple[str, ...]]:
    """Return the job with what a script declares; the same object where that is nothing new.

    Args:
        job: as it is.
        declaration: of a script.
        replicas: servers that are to follow each new block.

    Returns:
        The job, and warnings about settings that differ from the job's, which stay.

    Raises:
        ConfigurationError: it contradicts the job: another shape or dtype of a known key, other data, another
            consistency, updates elsewhere than on the servers of an `async` or `ssp` job; or it is not an optimizer, or
            too large a model.
    """
    warnings: list[str] = []
    changes: dict[str, object] = {}
    model = job.model.extended(declaration.tensors)
    blocks = sum(max(1, tensor.nbytes // model.block_bytes) for tensor in model.tensors)  # before they are made
    if blocks > MOST_BLOCKS:
        raise ConfigurationError(
            f"the model would have {blocks} blocks of {model.block_bytes} bytes, more than {MOST_BLOCKS}: "
            "give larger --block-bytes"
        )
    if len(model.tensors) > len(job.model.tensors):
        assert job.configuration is not None
        grown = replace(job, model=model)
        servers = len(job.configuration.servers)
        assignment = extend(sizes(grown), job.configuration.assignment, servers) if servers else ()
        followers = grown_followers(grown, assignment, replicas)
        changes |= {"model": model, "configuration": job.configuration.extended(assignment, followers)}
    optimizers = _optimizers(job.optimizers, declaration, warnings)
    if optimizers != job.optimizers:
        changes["optimizers"] = optimizers
    data = _data(job.data, declaration.data)
    if data != job.data:
        changes["data"] = data
    if declaration.local_update and not job.local_update:
        changes["local_update"] = True
    merged = replace(job, **changes) if changes else job  # type: ignore[arg-type]
    _check_updates(merged, declaration)
    return merged, tuple(warnings)


def _check_updates(job: DurableJob, declaration: Declaration) -> None:
    """Refuse updates elsewhere than on the servers where there is no common step. An optimizer may be set later."""
    if job.is_sync:
        return
    assert job.data is not None
    mode = job.data.consistency
    if job.local_update:
        raise ConfigurationError(
            f'consistency "{mode}" needs {OPTIMIZER_ON_SERVERS}, which update on each push: let no worker run its own'
        )
    trained = any(not tensor.auxiliary for tensor in declaration.tensors)
    if job.elastic and trained and not any(job.optimizers[declaration.store : declaration.store + 1]):
        raise ConfigurationError(
            f'consistency "{mode}" needs {OPTIMIZER_ON_SERVERS}, which update on each push, and key store '
            f"{declaration.store} has none: call set_optimizer before the first push"
        )


def _optimizers(known: tuple[str, ...], declaration: Declaration, warnings: list[str]) -> tuple[str, ...]:
    spec = OptimizerSpec.from_json(declaration.optimizer)
    if spec is None:
        return known
    if declaration.store >= MOST_STORES:
        raise ConfigurationError(f"store {declaration.store}: a job has at most {MOST_STORES} key stores")
    padded = [*known, *[""] * (declaration.store + 1 - len(known))]
    text, old = spec.to_json(), padded[declaration.store]
    if not old:
        padded[declaration.store] = text
    elif (known_rule := json.loads(old)["name"]) != spec.name:
        warnings.append(f"optimizer {spec.name} is ignored, the job has {known_rule}")
    elif old != text:
        _check_groups(json.loads(old)["keys"], spec.keys)
        warnings += _differences("optimizer", json.loads(old), json.loads(text))
    return tuple(padded)


def _check_groups(known: Mapping[str, Mapping[str, float]], new: Mapping[str, Mapping[str, float]]) -> None:
    """Refuse parameter groups in another order than the job's: a learning rate is told by its group's number alone.

    Args:
        known: what the job's optimizer has of each key.
        new: likewise, of a script's.
    """
    for key, own in sorted(new.items()):
        group, jobs = int(own.get("group", 0)), int(known.get(key, {}).get("group", 0))
        if group and group != jobs:
            raise ConfigurationError(
                f"parameter {key[2:]} is in group {group} of this script's optimizer, and in group {jobs} of the "
                "job's: give every worker the same groups in the same order (a set has another order in each "
                "process), and restore with those that were saved"
            )


def _data(known: DataSpec | None, new: DataSpec | None) -> DataSpec | None:
    """Return the job's data, which stays once it is elastic; a script without a Sampler says nothing of it."""
    if new is None or new == known:
        return known
    _check_consistency(known, new)
    if known is None or not known.elastic:
        return new if new.elastic or known is None else known
    if not new.elastic:
        return known
    known = known if known.order else replace(known, order=new.order)  # an earlier release's checkpoint does not tell
    _check_order(known, new)
    return known


def _check_order(known: DataSpec, new: DataSpec) -> None:
    """Refuse data that is ordered otherwise than the job's: a worker divides it by what its own script says."""
    theirs, ours = asdict(new), asdict(known)
    if differing := [name for name in ours if ours[name] != theirs[name]]:
        other = ", ".join(f"{_SAID.get(name, name)} {theirs[name]!r}" for name in differing)
        job = ", ".join(f"{ours[name]!r}" for name in differing)
        raise ConfigurationError(
            f"this script's data has {other}, and the job's {job}: give every worker the same script and data, and "
            "restore with those that were saved. With others begin a new job: it may load weights that "
            "`elasticctl export` has written"
        )


def _check_consistency(known: DataSpec | None, new: DataSpec) -> None:
    """Refuse another consistency than the job's; static sync data is also what a script says before its Sampler."""
    if known is None or (known.consistency, known.staleness) == (new.consistency, new.staleness):
        return
    if known.elastic != new.elastic and (known if new.elastic else new).is_sync:
        return
    raise ConfigurationError(
        f"this worker's consistency is {_mode(new)}, but the job's is {_mode(known)}: give every worker the same "
        "consistency and staleness, in the Sampler and of the key store"
    )


def _mode(data: DataSpec) -> str:
    return f'"ssp" with staleness {data.staleness}' if data.staleness else f'"{data.consistency}"'


def _differences(name: str, old: dict[str, object], new: dict[str, object], path: str = "") -> Iterable[str]:
    """Yield one sentence for each setting that differs."""
    for key in sorted(old.keys() | new.keys()):
        here, mine, yours = f"{path}{key}", old.get(key), new.get(key)
        if isinstance(mine, dict) and isinstance(yours, dict):
            yield from _differences(name, mine, yours, f"{here}.")
        elif mine != yours:
            yield f"{name}: {here} = {yours!r} is ignored, the job has {mine!r}"
