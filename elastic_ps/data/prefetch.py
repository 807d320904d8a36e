"""A `Prefetch` has batches loaded ahead, and throws away what a new configuration has made useless."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]


class Prefetch:
    """A `Prefetch` is what a `Sampler` takes as `load` and `lookahead`.

    Args:
        start: begins to load the batch of some samples elsewhere.
        load: loads one now.
        most: how many are loaded ahead.
    """

    def __init__(self, start: Callable[[Indices], "Future[Any]"], load: Callable[[Indices], Any], most: int):
        self._start = start
        self._load = load
        self._most = most
        self._ahead: dict[bytes, Future[Any]] = {}  # by the batch's sample indices

    def take(self, indices: Indices) -> Any:
        """Return the batch of these samples, loaded before or now."""
        future = self._ahead.pop(indices.tobytes(), None)
        return self._load(indices) if future is None else future.result()

    def look_ahead(self, coming: list[Indices]) -> None:
        """Start to load what probably comes next, and drop what does not any more."""
        wanted = {indices.tobytes(): indices for indices in coming[: self._most]}
        for key in self._ahead.keys() - wanted.keys():
            self._ahead.pop(key).cancel()
        for key, indices in wanted.items():
            if key not in self._ahead:
                self._ahead[key] = self._start(indices)
