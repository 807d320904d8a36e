"""This benchmark measures what a checkpoint of a job without servers costs a step: a copy of a part of the memory.

    python -m benchmarks.group_checkpoint [--repeats 7]

A model of 102 MB is copied as `GroupSaver` copies it, and, in turn with that, its tensors and the optimizer's by
`Tensor.clone`. What is compared is the processor time of the script's thread, which other programs do not change much.
Writing to the storage goes on beside the steps, and is not in it.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from benchmarks.support.report import as_program, at_most, finish
from elastic_ps.core.model import Model, Tensor
from elastic_ps.torch.allreduce.checkpoints.replica_blocks import ReplicaBlocks
from elastic_ps.torch.allreduce.replica.replica import Replica
from elastic_ps.torch.model import parameter_keys, tensors_of
from elastic_ps.torch.rules import translate

LAYERS, WIDTH = 40, 800
OPTIMIZERS: Mapping[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD, momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=0.1),
}
MEMBERS = (1, 2, 4)
ALLOWED = 1.5
"""A copy may take so many times what a clone of the same bytes takes."""


def main() -> int:
    """Measure all optimizers; see the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7, help="copies, and as many clones")
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    rows = [row for name in OPTIMIZERS for row in _rows(name, repeats)]
    worst = max(row["ratio"] for row in rows)
    goal = at_most("the copy of a part takes the time of a clone of as many bytes, times, at worst", ALLOWED, worst, "")
    return finish("group_checkpoint", rows, [goal], ["torch", "numpy"])


def _rows(name: str, repeats: int) -> Iterator[Mapping[str, Any]]:
    """Yield a row for each number of members."""
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
    optimizer = OPTIMIZERS[name](model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    keys, arrays = parameter_keys(model, optimizer), dict(tensors_of(model, ()))
    job = Model(tuple(Tensor(0, key, array.shape, array.dtype) for key, array in arrays.items()))
    blocks = ReplicaBlocks(Replica(optimizer, list(keys), arrays, ()), job, translate(optimizer, keys))
    held = [
        tensor for state in optimizer.state.values() for tensor in state.values() if isinstance(tensor, torch.Tensor)
    ]
    held += model.parameters()
    total = sum(tensor.nbytes for tensor in held)
    for members in MEMBERS:
        copies, clones = [], []
        for _ in range(repeats):
            copies.append(_seconds(lambda members=members: blocks.copy(blocks.part(0, members))))  # type: ignore[misc]
            clones.append(_seconds(lambda: [tensor.detach().clone() for tensor in held]))
        part = sum(array.nbytes for block in blocks.copy(blocks.part(0, members)) for _, array in block.parts)
        copy, clone = statistics.median(copies), statistics.median(clones) * part / total
        yield {
            "optimizer": name,
            "members": members,
            "part_mb": round(part / 1e6),
            "copy_ms": round(copy * 1e3, 1),
            "clone_ms": round(clone * 1e3, 1),
            "ratio": round(copy / clone, 2),
        }


def _seconds(work: Callable[[], Any]) -> float:
    """Return the processor time of this thread that `work` takes."""
    began = time.thread_time()
    work()
    return time.thread_time() - began


if __name__ == "__main__":
    as_program(main)
