"""A `KeyStore` in this process: one worker, one server that is a dict, the real optimizer rules."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from elastic_ps.core.compression import Compression
from elastic_ps.core.data_order import DataSpec
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.optimizer import Hyper, OptimizerSpec
from elastic_ps.core.sparse_rows import Rows, summed
from elastic_ps.optimizers import Rule, make_rule
from elastic_ps.worker.script.api import Array


@dataclass
class Held:
    """One key on the server."""

    value: np.ndarray
    states: dict[str, np.ndarray] = field(default_factory=dict)
    count: int = 0


class FakeStore:
    """See `KeyStore`.

    Args:
        values: what the job already holds, as a joiner finds it.
    """

    def __init__(self, values: dict[str, np.ndarray] | None = None):
        self.rank = 0
        self.num_workers = 1
        self.mode = "sync"
        self.data: DataSpec | None = None
        self.rule = ""
        self.calls: list[str] = []
        self.held: dict[str, Held] = {}
        self.broadcasted: set[str] = set()
        self.pushed: set[str] = set()
        self.commands: list[tuple[int, str]] = []
        self.warnings: list[str] = []
        self.specs: list[OptimizerSpec] = []
        self.hypers: list[Hyper] = []
        self._combining = False
        self._values = values or {}
        self._rule: Rule | None = None
        self._hyper: Callable[[int], Hyper] | None = None
        self._staged: dict[str, np.ndarray | Rows] = {}
        self._outs: dict[str, Sequence[Array]] = {}

    def init(self, keys: Sequence[str], arrays: Sequence[Array]) -> None:
        self.calls.append("init")
        for key, array in zip(keys, arrays, strict=True):
            if key in self.held:
                raise ConfigurationError(f"key {key[2:]}: initialized twice")
            assert array.read().dtype.name == array.dtype
            assert array.read().shape == array.shape
            self.held[key] = Held(self._values.get(key, np.array(array.read())).copy())

    def broadcast(self, keys: Sequence[str], arrays: Sequence[Array], outs: Sequence[Sequence[Array]]) -> None:
        self.init(keys, arrays)
        self.broadcasted.update(keys)
        self._write(keys, outs)

    def push(self, keys: Sequence[str], gradients: Sequence[Sequence[Array]]) -> None:
        self.calls.append("push")
        self._check(keys, gradients)
        for key, arrays in zip(keys, gradients, strict=True):
            if key in self._staged:
                self._close()
            rows = [array.stored_rows() for array in arrays]
            if all(one is not None for one in rows):
                self._staged[key] = summed(rows, None, 1.0)
            else:
                self._staged[key] = np.sum([array.read() for array in arrays], axis=0, dtype=arrays[0].dtype)
        if not self._combining:
            self._close()

    def pull(self, keys: Sequence[str], outs: Sequence[Sequence[Array]]) -> None:
        self.calls.append("pull")
        self._check(keys, outs)
        if self._staged.keys() & set(keys):
            self._close()
        self._write(keys, outs)

    def pushpull(
        self, keys: Sequence[str], gradients: Sequence[Sequence[Array]], outs: Sequence[Sequence[Array]]
    ) -> None:
        self._outs.update(zip(keys, outs, strict=True))
        self.push(keys, gradients)

    @contextmanager
    def combined(self, overlap: bool = False) -> Iterator[None]:
        self._combining = True
        yield
        self._combining = False
        self._close()

    def set_optimizer(self, spec: OptimizerSpec, hyper: Callable[[int], Hyper]) -> list[str]:
        self.calls.append("set_optimizer")
        self.specs.append(OptimizerSpec.from_json(spec.to_json()) or spec)
        self._rule, self._hyper, self.rule = make_rule(self.specs[-1]), hyper, spec.name
        return self.warnings

    def set_compression(self, compression: Compression) -> None:
        self.calls.append(f"set_compression {compression.kind}")

    def set_local_update(self) -> None:
        if self.mode != "sync":
            raise ConfigurationError(f'consistency "{self.mode}" needs an optimizer on the servers')
        self.calls.append("set_local_update")

    def barrier(self) -> None:
        self.calls.append("barrier")

    def optimizer_states(self) -> dict[str, dict[str, Any]]:
        return {
            key: {"count": held.count, **{name: array.reshape(held.value.shape) for name, array in held.states.items()}}
            for key, held in self.held.items()
            if key in self.pushed
        }

    def load_optimizer_states(self, states: dict[str, dict[str, Any]]) -> None:
        for key, state in states.items():
            held = self.held[key]
            self.pushed.add(key)
            held.count = state.get("count", held.count)
            held.states = {name: np.array(array).ravel() for name, array in state.items() if name != "count"}

    def command(self, head: int, body: str) -> None:
        self.commands.append((head, body))

    def _check(self, keys: Sequence[str], arrays: Sequence[Sequence[Array]]) -> None:
        for key, listed in zip(keys, arrays, strict=True):
            if key not in self.held:
                raise ConfigurationError(f"key {key[2:]}: not initialized")
            for array in listed:
                if array.shape != self.held[key].value.shape:
                    raise ConfigurationError(f"key {key[2:]}: shape {array.shape}")

    def _write(self, keys: Sequence[str], outs: Sequence[Sequence[Array]]) -> None:
        for key, arrays in zip(keys, outs, strict=True):
            for array in arrays:
                value = self.held[key].value
                array.write(value if array.rows is None else value[array.rows])

    def _close(self) -> None:
        hyper = None
        for key, gradient in self._staged.items():
            held = self.held[key]
            self.pushed.add(key)
            if isinstance(gradient, Rows) and (self._rule is None or self._hyper is None):
                gradient = gradient.dense(range(len(held.value))).reshape(held.value.shape)
            if self._rule is None or self._hyper is None:
                held.value = gradient
                continue
            held.count += 1
            hyper = hyper or self._hyper(held.count)
            self._update(key, held, gradient, hyper)
        if hyper:
            self.hypers.append(hyper)
        outs = {key: self._outs.pop(key) for key in self._staged if key in self._outs}
        self._staged = {}
        self._write(list(outs), list(outs.values()))

    def _update(self, key: str, held: Held, gradient: np.ndarray | Rows, hyper: Hyper) -> None:
        assert self._rule is not None
        value = held.value.ravel()
        if not held.states:
            held.states = {name: np.zeros(value.size, dtype) for name, dtype in self._rule.states(value.dtype)}
            self._rule.init(held.states, value)
        factors = self.specs[-1].keys.get(key, {})
        own = Hyper(
            hyper.lr * factors.get("lr_mult", 1.0),
            hyper.wd * factors.get("wd_mult", 1.0),
            hyper.rescale_grad,
            hyper.clip_gradient,
        )
        if not isinstance(gradient, Rows):
            self._rule.update(value, gradient.ravel(), held.states, held.count, own)
        elif not self._rule.skips_absent_rows(own):
            self._rule.update(value, gradient.dense(range(len(held.value))), held.states, held.count, own)
        else:
            width = value.size // len(held.value)
            at = (gradient.numbers[:, None] * width + np.arange(width)).ravel()
            part, states = value[at], {name: state[at] for name, state in held.states.items()}
            self._rule.update(part, gradient.values.ravel(), states, held.count, own)
            value[at] = part
            for name, state in states.items():
                held.states[name][at] = state
        held.value = value.reshape(held.value.shape)
