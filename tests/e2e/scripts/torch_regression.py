"""A float64 network of PyTorch without batch normalisation or dropout: what a batch is split into does not matter.

torch_regression.py FOLDER [--max-norm N] [--pace SECONDS] [--device DEVICE]

Trains with AdamW and a schedule of steps until the test writes FOLDER/finish; writes FOLDER/weights.npz. Each gradient
is sent when the backward pass has made it. FOLDER/beats grows by a byte with each step that a worker has made.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from ending import last_epoch
from holding import hold
from torch import nn
from torch.utils.data import TensorDataset

import elastic_ps.torch as elastic
from elastic_ps.worker.script import early_sends

SAMPLES, INPUTS, BATCH = 203, 12, 16


def data():
    random = torch.Generator().manual_seed(5)
    inputs = torch.randn(SAMPLES, INPUTS, generator=random, dtype=torch.float64)
    targets = torch.sin(inputs @ torch.randn(INPUTS, 3, generator=random, dtype=torch.float64))
    return TensorDataset(inputs, targets)


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(INPUTS, 40), nn.Tanh(), nn.Linear(40, 3)).double()


def optimizer_of(model):
    groups = [{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": 0.002}]
    return torch.optim.AdamW(groups, lr=0.004)


def schedule_of(optimizer):
    return torch.optim.lr_scheduler.StepLR(optimizer, 30, 0.9)


def train(model, optimizer, schedule, batch, bound=None):
    inputs, targets = (part.to(next(model.parameters()).device) for part in batch)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    if bound is not None:
        nn.utils.clip_grad_norm_(model.parameters(), bound)
    optimizer.step()
    schedule.step()
    return loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--max-norm", type=float)
    parser.add_argument("--pace", type=float, default=0.02, help="seconds of each step that stand for computation")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    folder = arguments.folder
    beats = (folder / "beats").open("ab", buffering=0)
    model = network().to(arguments.device)
    early_sends.PORTION_BYTES = 1
    optimizer = elastic.Optimizer(model, optimizer_of(model), overlap=True, max_norm=arguments.max_norm)
    schedule = schedule_of(optimizer)
    loader = elastic.DataLoader(data(), BATCH, shuffle=True)
    begun = False
    hold(folder / "hold-init")
    for epoch in elastic.epochs(1_000_000):
        for batch in loader:
            if not begun:
                hold(folder / "hold")
                begun = True
            loss = train(model, optimizer, schedule, batch)
            beats.write(b".")
            elastic.report(loss=loss)
            time.sleep(arguments.pace)
        if epoch == last_epoch(folder, epoch, None):
            break
    if elastic.is_chief():
        weights = {name: values.cpu().numpy() for name, values in model.state_dict().items()}
        np.savez(folder / "weights.npz", epochs=epoch + 1, **weights)


if __name__ == "__main__":
    main()
