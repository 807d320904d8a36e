"""This module holds what one cluster tells others: how fast types train, and the policy that decides; it has no names.

A type may be named by an image, with a registry and a user in it. So types are told by digests: who knows a type finds
it by its digest, who does not learns nothing of its name that cannot be guessed.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.cluster.ranges import LEAST_SPEED, MOST_SPEED
from dl2_scheduler.policies.learnt.array_files import MOST_MODELS, check_arrays, check_models, read_arrays
from dl2_scheduler.policies.learnt.weights import ARRAYS, Weights, shapes
from dl2_scheduler.policies.rules.speed_fit import Reports
from elastic_ps.system.bounded_files import MIB

MOST_BYTES = 4 * MIB
"""Of a cluster's file: a policy that knows some thousand types, and all that is known of their speeds, have less."""

_FORMAT = 1
_ABOUT, _COUNTS, _MEANS = "about", "counts", "means"  # arrays beside the policy's
_DIGEST = re.compile("[0-9a-f]{32}")
_MOST_SPEEDS = 50_000
_MOST_WEIGHT = 1e3  # what is learnt stays below ten; a step of learning moves what larger ones decide by far too much
_MOST_TASKS, _MOST_SLOTS = 10_000, 10**9  # of a role; in which one configuration was measured


@dataclass(frozen=True)
class ClusterKnowledge:
    """`ClusterKnowledge` is what one cluster tells others; types are named by their digests.

    Attributes:
        cluster: id that the cluster has given itself.
        at: when it was told, in unix seconds.
        speeds: what its jobs reported, by type.
        weights: of the policy that decides there.
    """

    cluster: str
    at: float
    speeds: Mapping[str, Reports]
    weights: Weights

    @property
    def measured(self) -> int:
        """The number of slots, of all jobs, in which speeds were measured."""
        return sum(count for reports in self.speeds.values() for count, _ in reports.values())


def type_digest(model: str) -> str:
    """Return what stands for the name of a type."""
    return hashlib.sha256(b"dl2 type\0" + model.encode(errors="surrogatepass")).hexdigest()[:32]


def encoded(knowledge: ClusterKnowledge) -> bytes:
    """Return the bytes of a cluster's file.

    Raises:
        BadInput: they are more than others would read.
    """
    types = list(knowledge.speeds)
    rows = [
        (number, *at, count, mean)
        for number, model in enumerate(types)
        for at, (count, mean) in sorted(knowledge.speeds[model].items())
    ]
    about = {"format": _FORMAT, "cluster": knowledge.cluster, "at": knowledge.at}
    about |= {"types": types, "models": knowledge.weights.models}
    arrays: dict[str, NDArray[Any]] = {
        _ABOUT: np.array(json.dumps(about)),
        _COUNTS: np.array([row[:4] for row in rows], dtype=np.int64).reshape(-1, 4),
        _MEANS: np.array([row[4] for row in rows], dtype=np.float64),
    }
    file = BytesIO()
    np.savez(file, **arrays, **knowledge.weights.arrays)
    if len(found := file.getvalue()) > MOST_BYTES or len(rows) > _MOST_SPEEDS:
        raise BadInput(f"{len(found)} bytes, {len(rows)} speeds: more than others would read")
    return found


def read_knowledge(path: Path) -> ClusterKnowledge:
    """Return what a cluster's file tells.

    Raises:
        BadInput: it is damaged, tells something impossible, or lacks something.
    """
    try:
        return _knowledge(path)
    except BadInput:
        raise
    except Exception as error:  # readers of archives, arrays and JSON have no common base for what they raise
        raise BadInput(f"it is damaged, or no cluster's: {error or type(error).__name__}") from error


def _knowledge(path: Path) -> ClusterKnowledge:
    found = read_arrays(path, MOST_BYTES)
    about = json.loads(str(found[_ABOUT]))
    if about["format"] != _FORMAT:
        raise BadInput(f"its format is {str(about['format'])[:20]}, not {_FORMAT}: serve with the same release")
    at = about["at"]
    if not isinstance(at, int | float) or not math.isfinite(at):
        raise BadInput(f"it was written at {str(at)[:20]}, which is no time")
    types = _digests(about["types"]) if about["types"] else ()
    models = _digests(about["models"])
    check_arrays(found, shapes(len(models), {name: array.shape for name, array in found.items()}))
    weights = Weights(models, {name: found[name] for name in ARRAYS})
    if any(np.abs(array).max(initial=0.0) > _MOST_WEIGHT for array in weights.arrays.values()):
        raise BadInput(f"weights are above {_MOST_WEIGHT:g}: nothing could be learnt from there on")
    return ClusterKnowledge(str(about["cluster"]), float(at), _speeds(types, found[_COUNTS], found[_MEANS]), weights)


def _digests(told: object) -> tuple[str, ...]:
    digests = check_models(told, MOST_MODELS)
    if not all(map(_DIGEST.fullmatch, digests)):
        raise BadInput("it names types other than by digests")
    return digests


def _speeds(types: tuple[str, ...], counts: NDArray[Any], means: NDArray[Any]) -> dict[str, Reports]:
    """Return speeds by type. Raises BadInput."""
    if counts.dtype != np.int64 or counts.ndim != 2 or counts.shape[1] != 4 or len(counts) > _MOST_SPEEDS:
        raise BadInput(f"counts of speeds are {counts.dtype} of the shape {counts.shape}")
    if means.dtype != np.float64 or means.shape != (len(counts),):
        raise BadInput(f"{len(counts)} counts have speeds of {means.dtype} of the shape {means.shape}")
    most = np.array([len(types) - 1, _MOST_TASKS, _MOST_TASKS, _MOST_SLOTS])
    if ((counts < [0, 0, 1, 1]) | (counts > most)).any():  # of jobs without servers 0 servers
        raise BadInput("a type, a number of tasks or of slots is impossible")
    if not ((means >= LEAST_SPEED) & (means <= MOST_SPEED)).all():  # NaN neither
        raise BadInput("a speed is impossible")
    found: dict[str, dict[tuple[int, int], tuple[int, float]]] = {model: {} for model in types}
    for (number, servers, workers, slots), mean in _rows(counts, means):
        found[types[number]][servers, workers] = slots, mean
    return dict(found)


def _rows(counts: NDArray[Any], means: NDArray[Any]) -> Iterator[tuple[list[int], float]]:
    return zip(counts.tolist(), means.tolist(), strict=True)
