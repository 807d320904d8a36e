"""This module holds what a Chic policy is made of, and the file that keeps it."""

import json
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.policies.chic.network import Network
from dl2_scheduler.policies.chic.phase import PhaseRules, actions_of, inputs_of
from dl2_scheduler.policies.learnt.array_files import MOST_MODELS, check_models, read_arrays, write_arrays

CHIC_FILE = "chic.npz"
"""The policy, in the folder of its run."""
_FORM = "form"
_LAYERS = 4


@dataclass(frozen=True)
class ChicForm:
    """A `ChicForm` says how a Chic policy decides.

    Attributes:
        models: types that it knows.
        scale: epochs that count as 1 in a state.
        visible: I, the jobs that it sees.
        pairs: Chic-Pair: a worker and a server come together.
        until_no_gain: see `PhaseRules`; it takes speeds to know.
        void_ends: see `PhaseRules`.
        present_only: see `PhaseRules`.
        sampled: actions are drawn by their probabilities; False: the best one each time.
    """

    models: tuple[str, ...]
    scale: float
    visible: int = 3
    pairs: bool = False
    until_no_gain: bool = True
    void_ends: bool = False
    present_only: bool = False
    sampled: bool = True

    @property
    def rules(self) -> PhaseRules:
        """Return the rules of its phases."""
        switches = self.pairs, self.until_no_gain, self.void_ends, self.present_only
        return PhaseRules(self.visible, len(self.models), *switches)


@dataclass(frozen=True)
class ChicWeights:
    """A `ChicWeights` is a policy that was learnt.

    Attributes:
        form: how it decides.
        network: that decides.
    """

    form: ChicForm
    network: Network


def save_chic(weights: ChicWeights, path: Path) -> None:
    """Write a policy, whole or not at all."""
    write_arrays(path, {_FORM: np.array(json.dumps(asdict(weights.form))), **weights.network._asdict()})


def load_chic(path: Path) -> ChicWeights:
    """Read a policy.

    Args:
        path: of the file, or of the folder of a run.

    Raises:
        BadInput: there is none, it is damaged, or its weights are not finite or do not fit each other.
    """
    try:
        found = read_arrays(path / CHIC_FILE if path.is_dir() else path)
        fields = json.loads(str(found[_FORM]))
        form = ChicForm(**{**fields, "models": check_models(fields["models"], MOST_MODELS)})
        network = Network(*(found[name].astype(float) for name in Network._fields))
        _check(form, network)
    except (OSError, KeyError, TypeError, ValueError, EOFError, RecursionError, BadZipFile, zlib.error) as error:
        raise BadInput(f"no policy of Chic in {path}: {error}") from error
    return ChicWeights(form, network)


def _check(form: ChicForm, network: Network) -> None:
    """Refuse layers that do not fit each other, which compiled code would not notice. Raises ValueError."""
    if not (isinstance(form.visible, int) and 0 < form.visible <= MOST_MODELS and form.scale > 0):
        raise ValueError(f"visible is {form.visible}, scale {form.scale}: give numbers above 0")
    width = inputs_of(form.rules)
    for number in range(_LAYERS):
        weight, bias = network[2 * number : 2 * number + 2]
        if weight.ndim != 2 or bias.shape != weight.shape[1:] or len(weight) != width:
            raise ValueError(f"layer {number + 1} has the shapes {weight.shape} and {bias.shape}, after {width} inputs")
        if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
            raise ValueError(f"layer {number + 1} is not finite: learning went wrong")
        width = len(bias)
    if width != actions_of(form.rules):
        raise ValueError(f"{width} outputs for {actions_of(form.rules)} actions")
