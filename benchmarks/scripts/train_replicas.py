"""A worker of PyTorch in float64, whose steps are written down: how often each was computed, and the last weights."""

import argparse
import os
import time
from pathlib import Path

import torch

SAMPLES, BATCH, INPUTS, EPOCH_STEPS = 128, 8, 6, 16
WEIGHTS = "weights.pt"


def data() -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs and targets."""
    random = torch.Generator().manual_seed(5)
    inputs = torch.randn(SAMPLES, INPUTS, generator=random, dtype=torch.float64)
    return inputs, torch.sin(inputs.sum(dim=1, keepdim=True))


def network() -> torch.nn.Module:
    """Return the network as it begins."""
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(INPUTS, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)).double()


def adam(model: torch.nn.Module) -> torch.optim.Optimizer:
    """Return its optimizer."""
    return torch.optim.AdamW(model.parameters(), lr=0.003)


def main() -> None:
    """Train so many epochs; each worker appends the version of each step that it computes to a file of its own."""
    import elastic_ps.torch as elastic
    from elastic_ps.worker.script.worker_job import script_job

    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--pace", type=float, default=0.0, help="seconds that a step takes at least")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    model = network()
    optimizer = elastic.Optimizer(model, adam(model))
    inputs, targets = data()
    sampler = elastic.Sampler(range(SAMPLES), BATCH, shuffle=True)
    with (arguments.folder / f"{os.getpid()}.steps").open("a", buffering=1) as steps:
        for _ in elastic.epochs(arguments.epochs):
            for batch in sampler:
                chosen = torch.as_tensor(list(batch))
                optimizer.zero_grad()
                torch.nn.functional.mse_loss(model(inputs[chosen]), targets[chosen]).backward()
                if script_job().rehearsed:
                    steps.write(f"{script_job().node.version}\n")
                optimizer.step()
                if not (arguments.folder / "hurry").exists():
                    time.sleep(arguments.pace)
    if elastic.is_chief():
        torch.save(model.state_dict(), arguments.folder / WEIGHTS)


if __name__ == "__main__":
    main()
