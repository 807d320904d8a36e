"""`BeforeRehearsal` finds what the first batch changes in a model without the optimizer: all workers share that.

What the batches do not change is the script's own to change, as by the epoch.
"""

from collections.abc import Collection, Mapping, Sequence

import torch

from elastic_ps.core.errors import ConfigurationError
from elastic_ps.torch.arrays import ModelArray, bytes_of_each, overwrite
from elastic_ps.torch.model import key_of

_SAMPLED = 64
"""Elements of a parameter that are looked at, at least: a copy of all might have no room."""

_Mark = tuple[int, int, bytes]


class BeforeRehearsal:
    """`BeforeRehearsal` is what buffers and parameters that nobody trains were before the rehearsal.

    Such a parameter that changes all the same is one of a target network, say: a moving average of others, which the
    script makes by itself.

    Args:
        arrays: of the model, by key.
        trained: keys of the parameters that have gradients and that an optimizer updates, this one or another.
        copies: `undo` is called. It has copies of such parameters, too, if they have no more bytes than the trained
            ones, as a target network has: those of a large model that is fine-tuned might have no room.

    Attributes:
        buffers: copies of them, by key.
    """

    def __init__(self, arrays: Mapping[str, ModelArray], trained: Collection[str], copies: bool = False):
        buffers = {key for key, array in arrays.items() if not isinstance(array.tensor, torch.nn.Parameter)}
        self.buffers = {key: arrays[key].tensor.clone() for key in arrays if key in buffers}
        self._arrays = arrays
        self._trained = trained
        self._frozen = [key for key in arrays if key not in buffers and key not in trained]
        self._marks = self._marks_now()
        copies = copies and _bytes(arrays, self._frozen) <= _bytes(arrays, trained)
        self._copies = {key: arrays[key].tensor.detach().clone() for key in self._frozen if copies}

    @torch.no_grad()
    def undo(self, but: Collection[str] = ()) -> None:
        """Make all that is copied what it was.

        Args:
            but: keys of what stays as it is.
        """
        for key, before in (self.buffers | self._copies).items():
            if key not in but:
                overwrite(self._arrays[key].tensor, before)
        self._copies = {}

    def changed(self) -> set[str]:
        """Return the keys of what has changed since."""
        marks = zip(self._frozen, self._marks, self._marks_now(), strict=True)
        roots = {self._frozen_root(key) for key, before, now in marks if before != now}
        frozen = {key for key in self._frozen if any(key.startswith(root) for root in roots)}
        tensors = ((key, before, self._arrays[key].tensor) for key, before in self.buffers.items())
        return frozen | {key for key, before, now in tensors if now is None or not torch.equal(before, now)}

    def _frozen_root(self, key: str) -> str:
        """Return how the keys begin of the largest module that has a parameter, and none that is trained.

        An average of what is alike yet may be the same, so one parameter that has changed tells of all of them.
        """
        ends = [number + 1 for number, letter in enumerate(key) if letter == "."]
        roots = (key[:end] for end in ends)
        return next((root for root in roots if not any(name.startswith(root) for name in self._trained)), key)

    def _marks_now(self) -> list[_Mark]:
        return _marks([self._arrays[key].tensor for key in self._frozen])


def _bytes(arrays: Mapping[str, ModelArray], keys: Collection[str]) -> int:
    return sum(arrays[key].tensor.nbytes for key in keys if key in arrays)


class BuffersBefore:
    """`BuffersBefore` finds the buffers that a script has set since its optimizer was made, before its first batch.

    It does so by the epoch, say, in which a worker joins: the job's first values are of another one.

    Args:
        model: whose.
    """

    def __init__(self, model: torch.nn.Module):
        self._known = {key_of(name): buffer.detach().clone() for name, buffer in model.named_buffers()}

    def changed(self, arrays: Mapping[str, ModelArray]) -> set[str]:
        """Return the keys of those buffers, of all that the job holds."""
        known = ((key, self._known[key], array.tensor) for key, array in arrays.items() if key in self._known)
        return {key for key, before, now in known if not _is_same(before, now)}


def _is_same(before: torch.Tensor, now: torch.Tensor) -> bool:
    """Return whether a tensor has the values of before, whatever device and type it has been moved to."""
    return before.shape == now.shape and torch.equal(before, now.to(before))


def check_frozen(averaged: Collection[str], pushed: Collection[str]) -> None:
    """Refuse a gradient of a parameter that is averaged, as the script itself has changed it in the first batch.

    Args:
        averaged: keys of what is.
        pushed: keys of the parameters that have gradients.

    Raises:
        ConfigurationError: names one.
    """
    if thawed := sorted(set(averaged) & set(pushed)):
        raise ConfigurationError(
            f"parameter {thawed[0][2:]} has a gradient, and in the first batch it was frozen and the script "
            "changed it: a parameter is trained by the optimizer or changed by the script, and not both"
        )


def _marks(tensors: Sequence[torch.Tensor]) -> list[_Mark]:
    """Return of each tensor what becomes another where somebody changes it: PyTorch does not count all changes."""
    flat = [tensor.detach().reshape(-1) for tensor in tensors]
    samples = bytes_of_each([each[:: max(1, len(each) // _SAMPLED)] for each in flat])
    return [(tensor.data_ptr(), tensor._version, sample) for tensor, sample in zip(tensors, samples, strict=True)]
