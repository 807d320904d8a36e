"""An `Optimizer` is the script's own optimizer of PyTorch, whose updates the job's servers make."""

import logging
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import torch

from elastic_ps.core.compression import Compression
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.gradient_norm import SKIPPED
from elastic_ps.core.optimizer import Hyper, OptimizerSpec
from elastic_ps.torch import loss_scale, rules
from elastic_ps.torch.arrays import GradientArray
from elastic_ps.torch.early_gradients import EarlyGradients
from elastic_ps.torch.gradient_watch import GradientWatch
from elastic_ps.torch.model import GROUPS_FIRST, check_groups, check_memory, members_of, tell_of_equal_names
from elastic_ps.torch.optimizer_arguments import (
    check_arguments,
    check_place,
    check_states,
    checked_compression,
    checked_norm,
)
from elastic_ps.torch.optimizer_store import OptimizerStore
from elastic_ps.torch.schedules import Schedules
from elastic_ps.torch.shared_model import SharedModel
from elastic_ps.torch.states import follow_loads, from_torch, states_to_load, to_torch
from elastic_ps.worker.script.script_job import ScriptJob
from elastic_ps.worker.script.worker_job import current_job, script_job

log = logging.getLogger(__name__)

_numbers = count()
_made: "weakref.WeakSet[Optimizer]" = weakref.WeakSet()


def optimizers() -> list["Optimizer"]:
    """Return those that this process has made, the oldest first."""
    return sorted(_made, key=lambda optimizer: optimizer.number)


class Optimizer(torch.optim.Optimizer):
    """An `Optimizer` sends the gradients to the servers in `step`, and then has the new parameters.

        optimizer = elastic.Optimizer(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))

    The wrapped optimizer stays the script's: schedulers and the script change the numbers in its `param_groups`, and
    each step takes those of the chief's. `step` is called in each batch of an `elastic.DataLoader`.

    Args:
        model: whose parameters it updates, and whose buffers (batch norm's statistics) the workers share.
        optimizer: one of `torch.optim`, over parameters of `model`.
        overlap: send gradients while `loss.backward()` makes others. It is called once in each batch then. Gradients on
            a GPU are sent when all are made, as PyTorch makes them on a thread of its own.
        max_norm: of all gradients together, those of all workers and on all servers: they are made smaller where it is
            larger, as `torch.nn.utils.clip_grad_norm_` does in one process; None: as they are.
        compression: "bfloat16" or "float16": gradients of float32 are rounded to it, and travel with half the bytes; a
            float16 above 65,504 is infinite. Give it in all workers. None: they travel as they are.

    Attributes:
        wrapped: the script's own.
        number: counts the optimizers of this process.
        steps: that were made, the rehearsal's with them.
        max_norm: see Args; it may be changed between steps, and the chief's counts.
        skipped: the last step changed nothing, as a scaled gradient of some worker had overflowed (`GradScaler`).

    Raises:
        ConfigurationError: the servers cannot run the optimizer, or hold a parameter; it says which and why.
    """

    _step_supports_amp_scaling = True
    """PyTorch's GradScaler then calls `step` in every case, with `found_inf` and `grad_scale` set."""

    without_servers: "type[Optimizer] | None" = None
    """The class of optimizers in this process where its job has no servers; None: it has some."""

    def __new__(
        cls,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        overlap: bool = False,
        max_norm: float | None = None,
        compression: str | None = None,
    ) -> "Optimizer":
        """Make an optimizer of the kind that the job of this process needs."""
        return super().__new__(cls.without_servers or cls)

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        overlap: bool = False,
        max_norm: float | None = None,
        compression: str | None = None,
    ):
        check_arguments(model, optimizer, Optimizer)
        self.max_norm = max_norm
        self._compression = checked_compression(compression)
        self._store: OptimizerStore | None = None
        super().__init__(optimizer.param_groups, optimizer.defaults)
        self.wrapped = optimizer
        self.number = next(_numbers)
        self.steps = 0
        self.skipped = False
        self._scales = False  # the script has a GradScaler
        self._model = model
        self._share_groups()
        self._loads = False  # the wrapped optimizer loads what this one was given
        follow_loads(optimizer, self._check_load, self._share_groups)
        self._shared = SharedModel(model, optimizer)
        self._keys = self._shared.keys
        self._members = members_of(optimizer)
        self._spec = self._translate()
        self._early = EarlyGradients(self._send_early) if overlap else None
        self._watch = GradientWatch(self._keys, self._early.made if self._early else None)
        self._first: Sequence[rules.Numbers] = ()  # of the groups, in the rehearsal
        self._begun = False  # the schedules are where this step is
        self._schedules = Schedules((optimizer, weakref.proxy(self)))  # no cycle: one that is let go is gone
        _made.add(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refuse to be copied or pickled: there is one in a job, which no copy would be part of."""
        raise ConfigurationError(
            "an elastic.Optimizer cannot be copied or pickled, as it is part of this worker's job: save "
            "optimizer.state_dict(), copy optimizer.wrapped, and keep no reference to it in a model that is copied"
        )

    @property
    def max_norm(self) -> float | None:
        """See the class."""
        return self._max_norm

    @max_norm.setter
    def max_norm(self, bound: float | None) -> None:
        self._max_norm = checked_norm(bound)

    @torch.inference_mode(False)  # what is made in that mode has no versions, and stays so
    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Send the gradients, wait until those of all workers are in, and take the new parameters.

        Args:
            closure: is refused: servers could not call it.

        Raises:
            ConfigurationError: there is no gradient, or what was asked for cannot be done.
        """
        if closure is not None:
            raise ConfigurationError(
                "optimizer.step(closure) is refused, as servers cannot call it: compute the loss, call "
                "loss.backward(), then optimizer.step()"
            )
        try:
            self._make_step()
        except BaseException:
            loss_scale.forget(self)
            raise

    def _make_step(self) -> None:
        self._share_groups()
        check_groups(self.wrapped, self._members)
        self._check_rule()
        self._scales = loss_scale.is_scaled(self)
        self._watch.check(scaled=self._scales)
        if self._scales and self._early is not None:
            raise ConfigurationError(
                "overlap=True sends gradients before GradScaler's scale is taken from them: leave one of them out"
            )
        self.define()
        self._begin()
        found = self._hyper(0)  # a number that the rule cannot take is refused before anything is done
        self._first = self._first or found.groups
        pushed = {key: parameter.grad for parameter, key in self._keys.items() if parameter.grad is not None}
        if self._early is not None and any(parameter.grad is not sent for parameter, sent in self._early.sent.items()):
            raise ConfigurationError(
                "a gradient was taken away or replaced between loss.backward() and optimizer.step(), after it was "
                "sent: call zero_grad() before backward(), or make elastic.Optimizer without overlap=True"
            )
        if not pushed:
            raise ConfigurationError("optimizer.step() without a gradient: call loss.backward() before it")
        assert self._store is not None
        self._store.set_skip_overflow(self._scales)
        self._shared.check_pushed(pushed)
        self._learn_averaged()
        loss_scale.unscale(self, pushed.values())
        gradients = [[GradientArray(gradient)] for gradient in pushed.values()]
        self._store.pushpull(list(pushed), gradients, [[self._shared.arrays[key]] for key in pushed])
        self.steps += 1
        self.skipped = self._store.factor == SKIPPED
        self._begun = False
        if self._early is not None:
            self._early.begin_step()

    def define(self) -> None:
        """Tell the job the model's tensors, once: in the rehearsal, before the model has seen a batch."""
        if self._store is not None:
            return
        job = script_job()
        check_place(job)
        self._schedules.begin_rehearsal()
        if self._early is not None and len(optimizers()) > 1:
            raise ConfigurationError("overlap=True is for a script with one elastic.Optimizer; leave it out")
        self._store = self._open_store(job)
        if self._compression is not None:
            self._store.set_compression(Compression(self._compression))
        for warning in self._store.set_optimizer(self._spec, self._hyper):
            log.warning("%s", warning)
        others = self._of_others()
        if shared := [self._keys[parameter][2:] for parameter in others if parameter in self._keys]:
            raise ConfigurationError(f"parameter {shared[0]} is in two elastic.Optimizers; let one of them update it")
        updated = {parameter for optimizer in optimizers() for parameter in optimizer._keys if parameter.requires_grad}
        self._shared.define(self._store, others, updated)
        tell_of_equal_names(self._shared.arrays, [other._shared.arrays for other in optimizers() if other is not self])
        if states := from_torch(self.wrapped, self._keys):
            self._store.load_optimizer_states(states)

    def begin_loop(self) -> None:
        """Take note that the loop over epochs comes next. Raises what `Schedules.begin_loop` does."""
        self._schedules.begin_loop()

    def begin_batch(self) -> None:
        """Take note that a batch of the job comes next: schedulers are where it is before the script's body."""
        job = script_job()
        if job.place is None or job.spec is None:  # it is the rehearsal's
            return
        self._schedules.begin_batch(job.place, job.spec.steps_per_epoch)
        if self._store is not None:
            self._shared.train(self._store)

    def end_batch(self, is_left: bool) -> None:
        """Take note that a batch's body is over.

        Args:
            is_left: it has made no step, by a break: its gradients are dropped, as the batch comes once more.
        """
        job = script_job()
        self._schedules.end_batch(job.place, job.spec.steps_per_epoch if job.spec is not None else 0, is_left)
        self._learn_averaged()
        if job.staging.rehearsing or is_left:  # it counts for nothing, or comes again
            for parameter in self._keys:  # a script that calls zero_grad() behind step(), or never, would add to it
                parameter.grad = None
        if not is_left:
            return
        self._begun = False
        if self._early is not None:
            self._early.begin_step()
            if self._store is not None:
                self._store.drop_early()

    def state_dict(self) -> dict[str, Any]:
        """Return the groups and, collected from the servers, the states, in the wrapped optimizer's own format."""
        self._check_nothing_sent("state_dict")
        found = self._store.optimizer_states() if self._store is not None else None
        if found is not None:
            to_torch(self.wrapped, found, self._keys, self._first)
        return self.wrapped.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what `state_dict`, or the wrapped optimizer's own, returned.

        Call it in all workers: before the loop, or in one and the same batch of it. The chief's counts. A worker that
        joins, or a script that begins again after a restore, keeps the job's states.

        Args:
            state_dict: of an optimizer of the same class, over parameters of the same shapes.

        Raises:
            ConfigurationError: it is of another optimizer than the job has; nothing has been loaded then.
        """
        check_states(state_dict)
        self._check_nothing_sent("load_state_dict")
        before = self.wrapped.state_dict()
        self._loads = True
        try:
            self.wrapped.load_state_dict(state_dict)
            rules.check_loaded(self.wrapped, self._keys, self._spec)
            if self._store is not None:
                held = self._store.optimizer_states
                self._store.load_optimizer_states(states_to_load(self.wrapped, self._keys, held))
        except Exception:
            self.wrapped.load_state_dict(before)
            raise
        finally:
            self._loads = False

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters, as long as the training has not begun."""
        if hasattr(self, "wrapped"):  # else it is the constructor of PyTorch's class that adds
            raise ConfigurationError(f"add_param_group: {GROUPS_FIRST}")
        super().add_param_group(param_group)

    # ---- what a job without servers does otherwise (`allreduce.optimizer`) -----------------------------------------

    def _translate(self) -> OptimizerSpec:
        """Return what the job is told of the optimizer."""
        check_memory(self._model, self._keys)
        return rules.translate(self.wrapped, self._keys)

    def _check_rule(self) -> None:
        """Refuse what has been asked of the script's own optimizer since, and servers do not know."""
        rules.check_hooks(self.wrapped)
        rules.check_flags(self.wrapped, self._spec)

    def _check_load(self) -> None:
        """Refuse states that the wrapped optimizer alone would load, when the servers have theirs."""
        if self._store is not None and not self._loads:
            raise ConfigurationError(
                "load_state_dict of the optimizer that was wrapped in an elastic.Optimizer: the servers have its "
                "states, and would go on with those. Call load_state_dict of the elastic.Optimizer"
            )

    def _open_store(self, job: ScriptJob) -> OptimizerStore:
        """Open what takes the gradients."""
        return current_job().open_store()

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _send_early(self, parameters: Sequence[torch.Tensor]) -> bool:
        """Send gradients while the backward pass goes on."""
        job = script_job()
        if self._store is None or job.staging.rehearsing or job.place is None:
            return False
        self._share_groups()
        self._begin()
        ready = {self._keys[each]: each.grad for each in parameters if each.grad is not None}
        gradients = [[GradientArray(gradient)] for gradient in ready.values()]
        return self._store.push_early(list(self._keys.values()), list(ready), gradients)

    def _begin(self) -> None:
        """Bring schedulers to where the job is, once in a step, of a model that is as the job knows it."""
        if self._begun:
            return
        self._shared.check()
        self._begun = True
        job = script_job()
        self.wrapped._opt_called = True  # type: ignore[attr-defined]  # a scheduler of it asks whether it was
        if job.staging.rehearsing:
            self._schedules.rehearse()
        elif job.place is not None and job.spec is not None:
            self._schedules.begin_step(job.place, job.spec.steps_per_epoch)

    def _hyper(self, _num_update: int) -> Hyper:
        found = rules.hyper(self.wrapped, self._spec, self._first)
        return replace(found, max_norm=self.max_norm, skip_overflow=self._scales)

    def _check_nothing_sent(self, call: str) -> None:
        if self._early is not None and self._early.sent:
            raise ConfigurationError(
                f"{call}() between loss.backward() and optimizer.step(), when overlap=True has sent gradients of the "
                "step: call it behind step(), or make elastic.Optimizer without overlap=True"
            )

    def _share_groups(self) -> None:
        """Take the groups and the state of the script's own optimizer, which may have loaded others."""
        self.param_groups = self.wrapped.param_groups
        self.state = self.wrapped.state

    def _of_others(self) -> list[torch.Tensor]:
        """Return the tensors that other optimizers' stores hold, or will."""
        updated = [parameter for other in optimizers() if other is not self for parameter in other._keys]
        return updated + [array.tensor for other in optimizers() for array in other._shared.arrays.values()]

    def _learn_averaged(self) -> None:
        if self._store is not None and script_job().staging.rehearsing:
            self._shared.learn(self._store)
