"""What servers must do, bit by bit: the same training without them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.data_order import DataSpec
from elastic_ps.core.model import Model, Tensor
from elastic_ps.core.optimizer import Hyper, OptimizerSpec
from elastic_ps.optimizers import make_rule

SGD = OptimizerSpec("sgd", {"momentum": 0.9})
ADAM = OptimizerSpec("adam")
HYPER = Hyper(lr=0.1, wd=0.01, rescale_grad=1.0)
TENSORS = (
    Tensor(0, "i:0", (40, 10), "float32"),
    Tensor(0, "i:1", (7,), "float32"),
    Tensor(0, "i:2", (), "float32"),
    Tensor(0, "i:3", (65,), "float64"),
    Tensor(0, "i:4", (9,), "float32", auxiliary=True),
    Tensor(0, "i:5", (300,), "float32"),
)


def tensor_view(model: Model, slab: NDArray[np.uint8], number: int) -> NDArray[Any]:
    """A tensor's flat values in a whole-model slab."""
    tensor = model.tensors[number]
    start = model.blocks[model.blocks_of[number].start].position
    return slab[start : start + tensor.nbytes].view(tensor.dtype)


def random_slab(model: Model, rng: np.random.Generator, scale: float = 1.0) -> NDArray[np.uint8]:
    """Values for a whole model."""
    slab = np.zeros(model.slab_bytes, dtype=np.uint8)
    for tensor in range(len(model.tensors)):
        view = tensor_view(model, slab, tensor)
        view[...] = rng.normal(size=view.shape) * scale
    return slab


class Reference:
    """The same training without servers: whole tensors, one after the other."""

    def __init__(self, model: Model, spec: OptimizerSpec | None, data: DataSpec, slab: NDArray[np.uint8]):
        self.model, self.data = model, data
        self.slab = slab.copy()
        self.rule = make_rule(spec) if spec else None
        self.spec = spec
        self.count = 0
        self.states: list[dict[str, NDArray[Any]]] = []
        for number, tensor in enumerate(model.tensors):
            value = tensor_view(model, self.slab, number)
            layout = self.rule.states(np.dtype(tensor.dtype)) if self.rule and not tensor.auxiliary else ()
            states = {name: np.zeros(value.size, dtype=dtype) for name, dtype in layout}
            if self.rule and states:
                self.rule.init(states, value)
            self.states.append(states)

    def update(self, slabs: Sequence[NDArray[np.uint8]], samples: Sequence[int]) -> None:
        self.count += 1
        total = sum(samples)
        for number, tensor in enumerate(self.model.tensors):
            value = tensor_view(self.model, self.slab, number)
            views = [tensor_view(self.model, slab, number).copy() for slab in slabs]
            dtype = value.dtype.type
            if tensor.auxiliary or self.data.loss == "mean":
                given = [view for view, n in zip(views, samples, strict=True) if n]
                parts = [n for n in samples if n]
                aggregate = given[0]
                if len(given) > 1:
                    aggregate = given[0] * dtype(parts[0] / total)
                    for view, n in zip(given[1:], parts[1:], strict=True):
                        aggregate = aggregate + view * dtype(n / total)
            else:
                given = [view for view, n in zip(views, samples, strict=True) if n]
                aggregate = given[0].copy()
                for view in given[1:]:
                    aggregate = aggregate + view
                if self.data.elastic and self.data.global_batch != total:
                    aggregate = aggregate * dtype(self.data.global_batch / total)
            if self.rule is None or tensor.auxiliary:
                value[...] = aggregate
                continue
            factors = self.spec.keys.get(tensor.key, {}) if self.spec else {}
            hyper = Hyper(
                HYPER.lr * factors.get("lr_mult", 1.0), HYPER.wd * factors.get("wd_mult", 1.0), HYPER.rescale_grad
            )
            self.rule.update(value, aggregate, self.states[number], self.count, hyper)
