"""Every server tries an optimizer that the job does not have yet, before it becomes part of the job.

A server that found out by an Extend that it cannot run an optimizer could only die, with its blocks.
"""

from collections.abc import Iterator
from dataclasses import replace

from coordinator.core.callers import Declaration, OptimizerTrial
from coordinator.core.effects import Why
from coordinator.core.node_answers import Tried
from coordinator.core.state import State
from coordinator.core.step_context import StepContext
from elastic_ps.core.configuration import NodeId
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.optimizer import OptimizerSpec


def on_tried(context: StepContext, event: Tried) -> None:
    """Note whether a server can run an optimizer."""
    context.live(
        trials=tuple(
            replace(trial, answers={**trial.answers, event.node: event.error})
            if trial.optimizer == event.optimizer
            else trial
            for trial in context.state.trials
        )
    )


def hold(context: StepContext) -> bool:
    """Begin the trials that declarations need, refuse what a server cannot run, and forget trials that nobody needs."""
    state = context.state
    if state.job.configuration is None:
        return False
    waiting: list[Declaration] = []
    for declaration in state.declarations:
        error = _refusal(state, declaration)
        if error:
            context.refuse(declaration.to, error, Why.INVALID)
        else:
            waiting.append(declaration)
    known = {trial.optimizer: trial for trial in state.trials}
    needed = {declaration.optimizer: declaration for declaration in waiting if _needs_trial(state, declaration)}
    trials = tuple(
        known.get(text) or OptimizerTrial(text, tuple(_dtypes(state, needed[text])), since=context.now)
        for text in needed
    )
    if len(waiting) == len(state.declarations) and trials == state.trials:
        return False
    context.live(declarations=tuple(waiting), trials=trials)
    return True


def passed(state: State, declaration: Declaration) -> bool:
    """Return whether every server can run what is declared; no trial is under way for it."""
    return not _needs_trial(state, declaration) or not _missing(state, declaration)


def _needs_trial(state: State, declaration: Declaration) -> bool:
    """Return whether a trial is needed: not where the store has an optimizer, nor of what is no optimizer at all.

    Nor where there are no servers: the script's own optimizer makes the updates.
    """
    if state.job.all_reduces or any(state.job.optimizers[declaration.store : declaration.store + 1]):
        return False
    try:
        return OptimizerSpec.from_json(declaration.optimizer) is not None
    except ConfigurationError:
        return False


def _missing(state: State, declaration: Declaration) -> frozenset[NodeId]:
    """Return the servers that have not said yet whether they can."""
    assert state.job.configuration is not None
    answers = next((trial.answers for trial in state.trials if trial.optimizer == declaration.optimizer), {})
    return frozenset(server.id for server in state.job.configuration.servers) - answers.keys()


def _refusal(state: State, declaration: Declaration) -> str:
    """Return why the job's servers cannot run what is declared; "": nothing is known against it."""
    if not _needs_trial(state, declaration) or _missing(state, declaration):
        return ""
    assert state.job.configuration is not None
    answers = next(trial.answers for trial in state.trials if trial.optimizer == declaration.optimizer)
    errors = [(server.id, answers[server.id]) for server in state.job.configuration.servers if answers[server.id]]
    if not errors:
        return ""
    (node, why), others = errors[0], len(errors) - 1
    return f"{node} refuses it: {why}" if not others else f"{node} and {others} more refuse it: {why}"


def _dtypes(state: State, declaration: Declaration) -> Iterator[str]:
    """Yield the types of tensors that the store's optimizer would update, each once."""
    known = (tensor for tensor in state.job.model.tensors if tensor.store == declaration.store)
    updated = (tensor.dtype for tensor in (*known, *declaration.tensors) if not tensor.auxiliary)
    yield from dict.fromkeys(updated)
