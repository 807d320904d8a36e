"""A `SharedModel` is what the job holds of a model, and what of it the workers average or leave to the script."""

from collections.abc import Collection, Iterable

import torch

from elastic_ps.torch.arrays import ModelArray
from elastic_ps.torch.before_rehearsal import BeforeRehearsal, BuffersBefore, check_frozen
from elastic_ps.torch.model import check_parameters, check_shapes, key_of, parameter_keys, statistics, tensors_of
from elastic_ps.torch.optimizer_store import OptimizerStore


class SharedModel:
    """A `SharedModel` has the parameters and buffers of a model that one optimizer's store holds.

    Args:
        model: the script's.
        optimizer: the script's own, over parameters of it.

    Attributes:
        keys: of the parameters that the optimizer updates.
        arrays: all that the store holds, by key; none before it is defined.
        undoes: the rehearsal will be undone here, as no servers have values from before it.

    Raises:
        ConfigurationError: a parameter of the optimizer is none of the model's, or no job can hold it.
    """

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer):
        self.keys = parameter_keys(model, optimizer)
        self.arrays: dict[str, ModelArray] = {}
        self.undoes = False
        self._model = model
        self._made_with: BuffersBefore | None = BuffersBefore(model)  # until the model is defined
        self._before = BeforeRehearsal({}, ())
        self._averaged: set[str] = set()  # keys of what the workers average in each step
        self._cached: set[str] = set()  # keys of what the batch has changed, and is no state
        self._set: set[str] = set()  # keys of the buffers that the script has set before its first batch
        self._trains = False

    def define(self, store: OptimizerStore, others: Iterable[torch.Tensor], updated: Collection[torch.Tensor]) -> None:
        """Give a store all tensors, in the rehearsal before its batch.

        Args:
            store: of the optimizer.
            others: tensors that other optimizers' stores hold, or will.
            updated: parameters that have gradients and that an optimizer updates, this one or another.
        """
        self.arrays = dict(tensors_of(self._model, others))
        check_parameters(self.arrays, self.keys)
        assert self._made_with is not None, "it is defined once"
        self._set, self._made_with = self._made_with.changed(self.arrays), None
        store.keep(self._set)
        store.broadcast(list(self.arrays), list(self.arrays.values()), [[own] for own in self.arrays.values()])
        trained = {key_of(name) for name, parameter in self._model.named_parameters() if parameter in updated}
        self._before = BeforeRehearsal(self.arrays, trained, self.undoes)

    def learn(self, store: OptimizerStore) -> None:
        """Tell, in the rehearsal, what is averaged: statistics of normalisations, and what the batch changes."""
        changed, normalised = self._before.changed(), statistics(self._model) & self._before.buffers.keys()
        # What a module caches has numbers of Python's beside it, which the job does not know: they belong together.
        self._cached = {key for key in changed if not self.arrays[key].is_state} - normalised
        self._averaged = (changed - self._cached) | normalised
        store.set_auxiliary(self._averaged)
        store.keep((self._set - self._averaged) | self._cached)

    def train(self, store: OptimizerStore) -> None:
        """Leave to the script what no step changes, once the job's values are here: its first batch comes."""
        if not self._trains:
            store.keep(self.arrays.keys() - self.keys.values() - self._averaged)
            self._trains = True

    def check(self) -> None:
        """Refuse a model that is no longer as the job knows it; see `check_parameters` and `check_shapes`."""
        check_parameters(self.arrays, self.keys)
        check_shapes(self.arrays, self._before.buffers)

    def check_pushed(self, keys: Collection[str]) -> None:
        """Refuse gradients of what is averaged; see `check_frozen`."""
        check_frozen(self._averaged, keys)

    def undo_rehearsal(self) -> None:
        """Make buffers, and frozen parameters that the script changes, what they were before the rehearsal."""
        self._before.undo(self._cached)

    @property
    def first(self) -> dict[str, torch.Tensor]:
        """The values before the rehearsal, by key, of the buffers that are no state of the model."""
        return {key: values for key, values in self._before.buffers.items() if not self.arrays[key].is_state}
