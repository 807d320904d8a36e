"""This module keeps what was fitted of jobs' speeds at their places in a folder: what planners and LIF know.

profiles.json    what the tasks of each model need alone, and LIF's coefficients; a folder of speeds may lack it
speeds.npz       the fitted model of speeds (`placer_files`); a folder of profiles may lack it

Models are known by their names, so that a folder serves any cluster. A job of another model is placed by what else is
known of it, and others do not feel it.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.hardware.interference import LoadInterference
from dl2_scheduler.cluster.hardware.machines import Floats, Ints
from dl2_scheduler.cluster.hardware.placements import PlacementArrays
from dl2_scheduler.cluster.hardware.profiles import Profile, check_profile
from dl2_scheduler.cluster.hardware.view import PlacementView
from dl2_scheduler.policies.learnt.array_files import MOST_MODELS, check_models
from dl2_scheduler.policies.learnt.placer_files import SPEEDS_FILE, open_speeds, save_speeds
from dl2_scheduler.policies.learnt.pooled_speed import PooledSpeed
from elastic_ps.system.bounded_files import read_text

PROFILES_FILE = "profiles.json"
_UNKNOWN = -1
_FORMS = (3, 6)  # numbers of coefficients


@dataclass(frozen=True)
class SpeedModel:
    """A `SpeedModel` is what was fitted of some models' speeds; as a `PlacedSpeed` it tells them in a `view_of`.

    Attributes:
        models: names, in the order of the arrays.
        profiles: of the models; empty where the folder has none.
        speeds: fitted; None: the folder has none.
        interference: LIF's; None: the folder has none.
    """

    models: tuple[str, ...]
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    speeds: PooledSpeed | None = None
    interference: LoadInterference | None = None

    def numbers_in(self, models: tuple[str, ...]) -> Ints:
        """Return the number here of each of a cluster's models; -1: it is not known, (models,)."""
        own = {name: number for number, name in enumerate(self.models)}
        return np.array([own.get(name, _UNKNOWN) for name in models], dtype=np.int64)

    def view_of(self, view: PlacementView) -> PlacementView:
        """Return a view whose models are numbered as here; jobs of models that are not known have -1."""
        placed = replace(view.placed, model=self.numbers_in(view.models)[view.placed.model])
        return replace(view, models=self.models, profiles={**view.profiles, **self.profiles}, placed=placed)

    def rates(self, placements: PlacementArrays) -> Floats:
        """See `PlacedSpeed.rates`; 0 also for a job of an unknown model, which others do not feel."""
        return self._fitted().rates(self._seen(placements))

    def tried(self, placements: PlacementArrays, job: int, groups: Ints) -> Floats:
        """See `TriedSpeed.tried`, and `rates`."""
        if placements.model[job] == _UNKNOWN:
            return np.tile(self.rates(placements), (len(groups), 1))
        return self._fitted().tried(self._seen(placements), job, groups)

    def _fitted(self) -> PooledSpeed:
        if self.speeds is None:
            raise ValueError("the folder had no model of speeds")
        return self.speeds

    def _seen(self, placements: PlacementArrays) -> PlacementArrays:
        """Return the placements without the tasks of unknown models."""
        known = placements.model != _UNKNOWN
        seen = placements.of_tasks(known[placements.job])
        return replace(seen, model=np.where(known, placements.model, 0))

    def slowdown(self, placements: PlacementArrays) -> Floats:
        """See `Interference.slowdown`; 0 also for a task of an unknown model, which others do not feel."""
        if self.interference is None:
            raise ValueError("the folder had no coefficients of LIF")
        known = (placements.model != _UNKNOWN)[placements.job]
        seen, found = placements.of_tasks(known), np.zeros(len(placements.job))
        found[known] = self.interference.slowdown(replace(seen, model=np.maximum(placements.model, 0)))
        return found


def save_speed_model(folder: Path, model: SpeedModel) -> None:
    """Write what was fitted into a folder, which is made where there is none; each file whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    if model.speeds is not None:
        save_speeds(folder, model.models, model.speeds)
    if not model.profiles:
        return
    told: dict[str, Any] = {"profiles": {name: asdict(model.profiles[name]) for name in model.models}}
    if model.interference is not None:
        told["interference"] = {key: value.tolist() for key, value in asdict(model.interference).items()}
    partial = (folder / PROFILES_FILE).with_suffix(".partial")
    partial.write_text(json.dumps(told, indent=2) + "\n")
    partial.replace(folder / PROFILES_FILE)


def open_speed_model(folder: Path) -> SpeedModel:
    """Return what was fitted.

    Raises:
        BadInput: there is nothing, it is damaged, or the files are of different models.
    """
    has_speeds, has_profiles = (folder / SPEEDS_FILE).exists(), (folder / PROFILES_FILE).exists()
    if not has_speeds and not has_profiles:
        what = f"has neither {SPEEDS_FILE} nor {PROFILES_FILE}" if folder.is_dir() else "is no folder"
        raise BadInput(f"{folder} {what}: give a folder that dl2 fit --places has written")
    found = _read_profiles(folder / PROFILES_FILE) if has_profiles else None
    if not has_speeds and found is not None:
        return found
    models, speeds = open_speeds(folder)
    if found is None:
        return SpeedModel(models, speeds=speeds)
    if found.models != models:
        raise BadInput(f"{folder}: {SPEEDS_FILE} and {PROFILES_FILE} know other models: they are of different runs")
    return replace(found, speeds=speeds)


def _read_profiles(file: Path) -> SpeedModel:
    """Return the profiles and coefficients of a file. Raises BadInput."""
    try:
        told = json.loads(read_text(file))
        models = check_models(tuple(told["profiles"]), MOST_MODELS)
        profiles = {name: _profile(values) for name, values in told["profiles"].items()}
        interference = _interference(told["interference"], len(models)) if "interference" in told else None
    except (
        OSError,
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        ArithmeticError,
        RecursionError,
        BadInput,
    ) as error:
        raise BadInput(f"{file} is damaged, or of another version: {error}") from error
    return SpeedModel(models, profiles, interference=interference)


def _profile(values: Mapping[str, Any]) -> Profile:
    """Return a profile. Raises ValueError: see `check_profile`."""
    found = Profile(**values)
    check_profile(found)
    return found


def _interference(values: Mapping[str, Any], models: int) -> LoadInterference:
    """Return LIF's coefficients. Raises ValueError: they are none of so many models."""
    found = LoadInterference(*(np.array(values[name], dtype=float) for name in ("coefficients", "cpu", "traffic")))
    shapes = found.coefficients.shape[:1], found.cpu.shape, found.traffic.shape
    if shapes != ((models,), (models, 2), (models, 2)) or found.coefficients.shape[-1] not in _FORMS:
        raise ValueError(f"the interference is not of {models} models")
    if not all(np.isfinite(array).all() for array in (found.coefficients, found.cpu, found.traffic)):
        raise ValueError("the interference has a number that is not finite")
    return found
