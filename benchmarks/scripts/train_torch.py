"""A worker of PyTorch that does next to nothing but exchange: a model's shapes, gradients that a sum makes, SGD.

The same model by an elastic job and by DistributedDataParallel with gloo: the name of the system is all that differs.
With --device MS the backward pass takes that long, spread over the parameters by their size, as a device's would: it
goes on whatever the worker does, which sleeps until the next gradient is there, and what is sent meanwhile is hidden.
With --cuda the model is on a GPU, which all workers share.
"""

import argparse
import math
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

from benchmarks.support.kvstores import tell, write_result
from benchmarks.support.models import MODELS, Shape
from elastic_ps.worker.script.worker_job import script_job

ELASTIC, OVERLAPPING, DDP = "elastic", "elastic-overlap", "ddp"
BATCH = 64  # nobody looks at the samples
GRADIENT = 2.0**-10  # of each element; exact in all types
_EPOCH = 100  # steps
_FOREVER = 1_000_000


class Device:
    """A `Device` makes one gradient after the other, and does not wait for its host."""

    def __init__(self) -> None:
        self._ready = 0.0

    def begin(self) -> None:
        """Begin a backward pass with the next gradient."""
        self._ready = 0.0

    def make(self, seconds: float) -> None:
        """Wait until the next gradient is made, which takes so long behind the one before."""
        self._ready = (self._ready or time.perf_counter()) + seconds
        time.sleep(max(0.0, self._ready - time.perf_counter()))


class Emulated(torch.autograd.Function):
    """An `Emulated` step hands a parameter on; its gradient comes from a device."""

    @staticmethod
    def forward(ctx: Any, *values: Any) -> torch.Tensor:
        """Return the parameter as it is; `values` are it, the device and the seconds that its gradient takes."""
        value, ctx.device, ctx.seconds = values
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[torch.Tensor, None, None]:
        """Return its gradient when it is made."""
        ctx.device.make(ctx.seconds)
        return gradients[0].contiguous(), None, None


class Shapes(nn.Module):
    """Parameters of some shapes, whose loss is their sum times a small number.

    Args:
        shapes: of the parameters.
        seconds: that a backward pass takes.
    """

    def __init__(self, shapes: list[Shape], seconds: float):
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(torch.zeros(shape)) for shape in shapes)
        total = sum(map(math.prod, shapes))
        self._seconds = [seconds * math.prod(shape) / total for shape in shapes]
        self._device = Device()

    def forward(self) -> torch.Tensor:
        """Return the loss."""
        self._device.begin()
        parts = zip(self.weights, self._seconds, strict=True)
        sums = [
            (Emulated.apply(weight, self._device, seconds) if seconds else weight).sum() for weight, seconds in parts
        ]
        return GRADIENT * torch.stack(sums).sum()


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)


def trained(model: Shapes, updates: int) -> float:
    """Return the last weight over what it is after so many updates in one process: 1."""
    alone = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([alone], lr=0.1, momentum=0.9, weight_decay=1e-4)
    for _ in range(updates):
        alone.grad = torch.full((1,), GRADIENT)
        optimizer.step()
    found = model.weights[-1].detach().reshape(-1)[-1].cpu()
    return round((found / alone.detach()).item(), 4) if updates else 1.0


def train_elastic(model: Shapes, arguments: argparse.Namespace) -> None:
    """Train until somebody has looked at the results; steps count that all workers have made together."""
    import elastic_ps.torch as elastic

    overlap, rounded = arguments.system == OVERLAPPING, arguments.compression or None
    optimizer = elastic.Optimizer(model, sgd(model), overlap=overlap, compression=rounded)
    sampler = elastic.Sampler(range(BATCH * _EPOCH), BATCH)
    seconds: list[float] = []
    for _ in elastic.epochs(_FOREVER):
        for _ in sampler:
            started = time.perf_counter()
            optimizer.zero_grad()
            model().backward()
            optimizer.step()
            settle(arguments)
            if elastic.num_workers() == arguments.workers:
                seconds.append(time.perf_counter() - started)
            if len(seconds) == arguments.steps:
                write_result(arguments.folder, elastic.rank(), seconds, trained(model, script_job().node.version))
            if len(seconds) >= arguments.steps and (arguments.folder / "done").exists():
                return


def train_ddp(model: Shapes, arguments: argparse.Namespace) -> None:
    """Train for so many steps, and wait until somebody has looked at the results."""
    torch.distributed.init_process_group("gloo")
    wrapped = nn.parallel.DistributedDataParallel(model)
    if arguments.compression:
        wrapped.register_comm_hook(None, bf16_compress_hook)
    optimizer = sgd(model)
    seconds = []
    for _ in range(arguments.steps):
        started = time.perf_counter()
        optimizer.zero_grad()
        wrapped().backward()
        optimizer.step()
        settle(arguments)
        seconds.append(time.perf_counter() - started)
    tell(arguments.folder, torch.distributed.get_rank(), seconds, trained(model, arguments.steps))


def settle(arguments: argparse.Namespace) -> None:
    """Wait until the GPU has done what it was told."""
    if arguments.cuda:
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("system", choices=(ELASTIC, OVERLAPPING, DDP))
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=_FOREVER)
    parser.add_argument("--workers", type=int, default=1, help="with which steps count (default 1)")
    parser.add_argument("--device", type=float, default=0.0, metavar="MS", help="that a backward pass takes")
    parser.add_argument("--compression", choices=("", "bfloat16"), default="", help="of gradients (default none)")
    parser.add_argument("--cuda", action="store_true", help="put the model on a GPU")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.system != DDP:
        import elastic_ps.torch  # noqa: F401  # before the model is made, as in users' scripts
    model = Shapes(MODELS[arguments.model](), arguments.device / 1000).to("cuda" if arguments.cuda else "cpu")
    (train_ddp if arguments.system == DDP else train_elastic)(model, arguments)


if __name__ == "__main__":
    main()
