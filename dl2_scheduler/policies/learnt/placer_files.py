"""This module keeps what was learnt about places in a run's folder, and opens it: a policy, and a model of speeds.

placer.npz    the network that says where tasks go
speeds.npz    the fitted model of speeds that it was learnt with; a folder may lack it

Both know models by their names, so that a run decides in any cluster. A job of another model is placed by what else is
known of it, and its neighbours are placed as if it were not there.
"""

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.hardware.machines import Floats, Ints
from dl2_scheduler.cluster.hardware.placements import PlacementArrays
from dl2_scheduler.cluster.hardware.view import PlacementView, Places
from dl2_scheduler.policies.learnt.array_files import MOST_MODELS, check_arrays, check_models, read_arrays, write_arrays
from dl2_scheduler.policies.learnt.dl2 import POLICY_FILE
from dl2_scheduler.policies.learnt.placer import LearntPlacer, placer_shapes
from dl2_scheduler.policies.learnt.pooled_network import speed_shapes
from dl2_scheduler.policies.learnt.pooled_speed import PooledSpeed

PLACER_FILE = "placer.npz"
SPEEDS_FILE = "speeds.npz"
_MODELS, _BASE = "models", "base"
_UNKNOWN = -1


@dataclass(frozen=True)
class NamedSpeed:
    """See `PlacedSpeed`: a fitted model's speeds in a cluster that numbers models in another way.

    Attributes:
        number: the fitted model's number of each model of the cluster; -1: it does not know it, (models,).
        speeds: fitted.
    """

    number: Ints
    speeds: PooledSpeed

    def rates(self, placements: PlacementArrays) -> Floats:
        """See `PlacedSpeed.rates`; 0 also for a job of an unknown model, which others do not feel."""
        model = self.number[placements.model]
        known = model != _UNKNOWN
        seen = placements.of_tasks(known[placements.job])
        return self.speeds.rates(replace(seen, model=np.where(known, model, 0)))


@dataclass(frozen=True)
class PlacerRun:
    """See `PlacementPolicy`: what a run has learnt decides.

    Attributes:
        models: names that it knows, in the order of its networks.
        placer: that decides.
        speeds: the model of speeds that it was learnt with; None: it was not kept.
    """

    models: tuple[str, ...]
    placer: LearntPlacer
    speeds: PooledSpeed | None = None

    def place(self, view: PlacementView) -> Places:
        """See `PlacementPolicy.place`."""
        model = self._numbers(view.models)[view.placed.model]
        return self.placer.place(replace(view, models=self.models, placed=replace(view.placed, model=model)))

    def speeds_in(self, models: tuple[str, ...]) -> NamedSpeed | None:
        """Return the model of speeds for a cluster, None where the run has none.

        Args:
            models: names, in the order of the cluster's placements.
        """
        return None if self.speeds is None else NamedSpeed(self._numbers(models), self.speeds)

    def _numbers(self, models: tuple[str, ...]) -> Ints:
        own = {name: number for number, name in enumerate(self.models)}
        return np.array([own.get(name, _UNKNOWN) for name in models], dtype=np.int64)


def save_placer(run: Path, learnt: PlacerRun) -> None:
    """Write what was learnt into a folder, which is made where there is none; each file whole or not at all."""
    run.mkdir(parents=True, exist_ok=True)
    if learnt.speeds is not None:
        save_speeds(run, learnt.models, learnt.speeds)
    write_named(run / PLACER_FILE, learnt.models, learnt.placer.arrays)


def save_speeds(run: Path, models: tuple[str, ...], speeds: PooledSpeed) -> None:
    """Write a model of speeds into a folder that is there.

    Args:
        run: the folder.
        models: names that it knows, in the order of its network.
        speeds: fitted.
    """
    write_named(run / SPEEDS_FILE, models, {_BASE: speeds.base.astype(np.float32), **speeds.arrays})


def open_placer(run: Path) -> PlacerRun:
    """Return the placement policy of a run's folder.

    Raises:
        BadInput: there is none, its files are damaged or of different runs, or weights are not finite.
    """
    if not (run / PLACER_FILE).exists() and (run / POLICY_FILE).exists():
        raise BadInput(f"no placement policy in {run}: its run learnt how many tasks jobs get, not where they go")
    models, found = read_named(run / PLACER_FILE)
    placer = LearntPlacer(checked_arrays(run / PLACER_FILE, found, placer_shapes(len(models), shapes_of(found))))
    return PlacerRun(models, placer, _speeds(run / SPEEDS_FILE, models))


def _speeds(file: Path, models: tuple[str, ...]) -> PooledSpeed | None:
    """Return the model of speeds of a file, None where there is no file. Raises BadInput."""
    if not file.exists():
        return None
    known, speeds = open_speeds(file.parent)
    if known != models:
        raise BadInput(f"{file} knows other models than {PLACER_FILE} beside it: they are of different runs")
    return speeds


def open_speeds(run: Path) -> tuple[tuple[str, ...], PooledSpeed]:
    """Return the names that a folder's model of speeds knows, in the order of its network, and the model.

    Raises:
        BadInput: there is none, it is damaged, or weights are not finite.
    """
    file = run / SPEEDS_FILE
    models, found = read_named(file, "model of speeds")
    wanted = speed_shapes(len(models), shapes_of(found))
    arrays = dict(checked_arrays(file, found, {_BASE: (len(models),), **wanted}))
    base = arrays.pop(_BASE).astype(float)
    if (base <= 0).any():
        raise BadInput(f"{file} is damaged: a model trains {base.min():g} samples a second")
    return models, PooledSpeed(arrays, base)


def write_named(file: Path, models: tuple[str, ...], arrays: Mapping[str, NDArray[np.float32]]) -> None:
    """Write arrays with the names of the models that they are about, whole or not at all.

    Args:
        file: is made, or replaced.
        models: names, in the order of the arrays.
        arrays: by name.
    """
    write_arrays(file, {_MODELS: np.array(json.dumps(models)), **arrays})


def read_named(file: Path, what: str = "placement policy") -> tuple[tuple[str, ...], dict[str, NDArray[Any]]]:
    """Return the names of models in a file, and its arrays. Raises BadInput.

    Args:
        file: of arrays.
        what: it holds, for people.
    """
    try:
        found = read_arrays(file)
        models = json.loads(str(found.pop(_MODELS)))
    except (OSError, KeyError, ValueError, EOFError, RecursionError, BadZipFile, zlib.error) as error:
        raise BadInput(f"no {what} in {file.parent}: {error}") from error
    return check_models(models, MOST_MODELS), found


def shapes_of(found: Mapping[str, NDArray[Any]]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a file's arrays by name."""
    return {name: array.shape for name, array in found.items()}


def checked_arrays(
    file: Path, found: Mapping[str, NDArray[Any]], wanted: Mapping[str, tuple[int, ...]]
) -> Mapping[str, NDArray[np.float32]]:
    """Return the arrays that are wanted.

    Args:
        file: that they are of.
        found: in it.
        wanted: their shapes by name.

    Raises:
        BadInput: they are not there, or not such.
    """
    try:
        check_arrays(found, wanted)
    except BadInput as error:
        raise BadInput(f"{file} is damaged, or of another version: {error}") from error
    return {name: found[name] for name in wanted}
