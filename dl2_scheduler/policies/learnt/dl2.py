"""DL2 in a live cluster: the learnt network decides, the best action each time."""

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.free_resources import FreeResources
from dl2_scheduler.cluster.snapshot import Allocation, Grant, Snapshot
from dl2_scheduler.policies.learnt.actions import Ints
from dl2_scheduler.policies.learnt.array_files import MOST_MODELS, check_arrays, check_models, read_arrays, write_arrays
from dl2_scheduler.policies.learnt.features import features, of_room
from dl2_scheduler.policies.learnt.fill import filled
from dl2_scheduler.policies.learnt.paper.policy import PaperDl2
from dl2_scheduler.policies.learnt.paper.weights import Layers, PaperWeights, paper_shapes
from dl2_scheduler.policies.learnt.weights import ARRAYS, Weights, shapes, share_of

SETTINGS_FILE = "settings.json"
CHECKPOINT_FILE = "checkpoint.pt"
POLICY_FILE = "policy.npz"
_MODELS = "models"
_MINIMUM = "minimum"  # only the paper's network has it


class Dl2:
    """See `AllocationPolicy` (DL2, sections 3.2 and 4.1).

    Args:
        weights: of the network.

    Attributes:
        inferences: of the last slot.
    """

    def __init__(self, weights: Weights):
        self.inferences = 0
        self._weights = weights

    def allocate(self, snapshot: Snapshot, room: FreeResources) -> Allocation:
        """See `AllocationPolicy.allocate`."""
        if not snapshot.jobs:
            return Allocation()
        counts = self._counts(room)
        return Allocation(
            {
                state.job.id: Grant(int(workers), int(servers))
                for state, (workers, servers) in zip(snapshot.jobs, counts, strict=True)
            }
        )

    def _counts(self, room: FreeResources) -> Ints:
        inputs, tasks = of_room(room, self._weights.models)
        rows = features(inputs, len(self._weights.models))
        scores = self._weights.scores(rows, share_of(inputs), int(tasks.most.max()))
        done = filled(tasks, scores, room.capacity, int(room.rule))
        self.inferences = len(done.actions)
        return done.counts


def save(weights: Weights | PaperWeights, path: Path) -> None:
    """Write a network, whole or not at all."""
    own = {_MINIMUM: np.array(weights.minimum)} if isinstance(weights, PaperWeights) else {}
    write_arrays(path, {_MODELS: np.array(json.dumps(weights.models)), **own, **weights.arrays})


def interrupted(run: Path) -> str | None:
    """Return why a run has neither a checkpoint nor a policy, and what to do; None: it has, or is none.

    Its bootstrap may not have come so far; or it is of another kind.
    """
    from dl2_scheduler.policies.learnt.run_kinds import other_kind  # those kinds import this one

    if any((run / name).exists() for name in (CHECKPOINT_FILE, POLICY_FILE)):
        return None
    if kind := other_kind(run):
        return kind
    if not (run / SETTINGS_FILE).exists():
        return None
    return f"its bootstrap was interrupted, or still runs: if none runs, `dl2 bootstrap --out {run}` begins it again"


def load(path: Path) -> Weights | PaperWeights:
    """Read a network, of either kind.

    Args:
        path: a run's folder, or the file in it.

    Raises:
        BadInput: there is none, it is damaged, or its weights are not finite or do not fit each other.
    """
    file = path / POLICY_FILE if path.is_dir() else path
    if why := interrupted(path):
        raise BadInput(f"no policy in {path}: {why}")
    try:
        found = read_arrays(file)
        models = json.loads(str(found[_MODELS]))
    except (OSError, KeyError, ValueError, EOFError, RecursionError, BadZipFile, zlib.error) as error:
        raise BadInput(f"no policy in {path}: {error}: make one by `dl2 bootstrap --out {path}`") from error
    try:
        return _weights(check_models(models, MOST_MODELS), found)
    except BadInput as error:
        raise BadInput(f"{file} is damaged, or of another version: {error}") from error


def _weights(models: tuple[str, ...], found: Mapping[str, NDArray[Any]]) -> Weights | PaperWeights:
    """Return a network whose arrays fit each other, and what a job's features are. Raises BadInput."""
    if _MINIMUM in found:
        check_arrays(found, paper_shapes(len(models), found["out_bias"].shape if "out_bias" in found else ()))
        return PaperWeights(models, bool(found[_MINIMUM].all()), {name: found[name] for name in Layers._fields})
    check_arrays(found, shapes(len(models), {name: array.shape for name, array in found.items()}))
    return Weights(models, {name: found[name] for name in ARRAYS})


def learnt(weights: Weights | PaperWeights) -> Dl2 | PaperDl2:
    """Return the policy that decides by a network."""
    return PaperDl2(weights) if isinstance(weights, PaperWeights) else Dl2(weights)
