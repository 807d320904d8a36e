"""Replicas of a small model, for tests."""

import torch

from elastic_ps.torch.allreduce.replica.replica import Replica
from elastic_ps.torch.arrays import ModelArray

OPTIMIZERS = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=0.1, amsgrad=True),
    "NAdam": lambda parameters: torch.optim.NAdam(parameters, lr=0.1),
    "ASGD": lambda parameters: torch.optim.ASGD(parameters, lr=0.1),
    "fused": lambda parameters: torch.optim.Adam(parameters, lr=0.1, fused=True),
}


def model_of(seed, device="cpu"):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).to(device)


def replica_of(model, make, first=None):
    keys = [*dict(model.named_parameters()), *dict(model.named_buffers())]
    arrays = {key: ModelArray(model[int(key[0])], key[2:]) for key in keys}
    statistics = {key for key in keys if "running" in key or "tracked" in key}
    return Replica(make(model.parameters()), list(model.parameters()), arrays, statistics, first=first)


def filled(replica, weights, limit=16):
    """Return a worker's part of a sum."""
    sums = replica.layout.buffers()
    for bucket in replica.layout.buckets(limit):
        replica.fill(bucket, sums, weights)
    return sums


def train(model, optimizer, seed):
    inputs = torch.randn(4, 3, generator=torch.Generator().manual_seed(seed)).to(next(model.parameters()).device)
    optimizer.zero_grad()
    model(inputs).square().sum().backward()
    optimizer.step()
