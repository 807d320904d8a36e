"""A worker of PyTorch in a job that grows and shrinks, by ours and by systems of others, which writes down its steps.

Each line of a worker's file has the time of a step (CLOCK_MONOTONIC, seconds), its number and how many workers made it.
"""

import argparse
import os
import time
from datetime import timedelta
from pathlib import Path

import torch
from torch import nn

from benchmarks.scripts.train_torch import BATCH, Shapes, sgd
from benchmarks.support.models import MODELS

ELASTIC, TORCHRUN, TORCHFT = "elastic", "torchrun", "torchft"
SAVE_EVERY = 20
"""Steps between two checkpoints of a job of torchrun, which is started again from the last one."""
_TORCHFT_WAITS = timedelta(seconds=10)
"""So long a replica waits for one that has gone: less than the 60 s that it would."""


class StepFile:
    """A `StepFile` is the file in which a worker writes its steps down.

    Args:
        folder: of all workers.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._lines = (folder / f"{os.getpid()}.steps").open("a", buffering=1)

    def note(self, step: int, workers: int) -> None:
        """Write down that so many workers have made a step now."""
        self._lines.write(f"{time.monotonic():.6f} {step} {workers}\n")


def train_elastic(model: Shapes, file: StepFile) -> None:
    """Train as a job of ours, until it is ended."""
    import elastic_ps.torch as elastic

    optimizer = elastic.Optimizer(model, sgd(model))
    sampler = elastic.Sampler(range(BATCH * 100), BATCH)
    for _ in elastic.epochs(1_000_000):
        for _ in sampler:
            optimizer.zero_grad()
            model().backward()
            optimizer.step()
            file.note(sampler.step, elastic.num_workers())


def train_torchrun(model: Shapes, file: StepFile) -> None:
    """Train by DistributedDataParallel from the last checkpoint on, until torchrun ends this process."""
    torch.distributed.init_process_group("gloo")
    optimizer, saved, first = sgd(model), file.folder / "checkpoint.pt", 0
    if saved.exists():
        found = torch.load(saved)
        model.load_state_dict(found["model"])
        optimizer.load_state_dict(found["optimizer"])
        first = found["step"]
    wrapped = nn.parallel.DistributedDataParallel(model)
    for step in range(first, 1_000_000):
        optimizer.zero_grad()
        wrapped().backward()
        optimizer.step()
        file.note(step, torch.distributed.get_world_size())
        if (step + 1) % SAVE_EVERY == 0 and not torch.distributed.get_rank():
            held = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
            torch.save(held, saved.with_suffix(".part"))
            saved.with_suffix(".part").rename(saved)


def train_torchft(model: Shapes, file: StepFile) -> None:
    """Train as a replica of torchft, which takes the state from another one when it joins, until it is ended."""
    from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo

    bare = sgd(model)
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    def load(held: dict[str, dict[str, object]]) -> None:
        model.load_state_dict(held["model"])
        bare.load_state_dict(held["optimizer"])

    manager = Manager(
        pg=ProcessGroupGloo(timeout=_TORCHFT_WAITS),
        timeout=_TORCHFT_WAITS,
        load_state_dict=load,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": bare.state_dict()},
        min_replica_size=1,
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        replica_id=f"replica_{os.getpid()}",
        hostname="127.0.0.1",
    )
    wrapped, optimizer = DistributedDataParallel(manager, model), Optimizer(manager, bare)
    while True:
        optimizer.zero_grad()
        wrapped().backward()
        before = manager.current_step()
        optimizer.step()
        if manager.current_step() > before:  # else it was given up
            file.note(before, manager.num_participants())


SYSTEMS = {ELASTIC: train_elastic, TORCHRUN: train_torchrun, TORCHFT: train_torchft}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("system", choices=SYSTEMS)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", type=float, required=True, metavar="MS", help="that a backward pass takes")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.system == ELASTIC:
        import elastic_ps.torch  # noqa: F401  # before the model is made, as in users' scripts
    model = Shapes(MODELS[arguments.model](), arguments.device / 1000)
    SYSTEMS[arguments.system](model, StepFile(arguments.folder))


if __name__ == "__main__":
    main()
