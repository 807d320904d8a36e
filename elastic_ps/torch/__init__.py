"""This package is the PyTorch adapter: a script of PyTorch trains elastically by three changed lines.

import elastic_ps.torch as elastic
optimizer = elastic.Optimizer(model, torch.optim.SGD(model.parameters(), lr=0.1))
loader = elastic.DataLoader(dataset, global_batch=256, shuffle=True)
for epoch in elastic.epochs(10):
    for images, labels in loader:
        ...
"""

from torch.nn import Module
from torch.optim import Optimizer as TorchOptimizer
from torch.optim.lr_scheduler import LRScheduler

from elastic_ps.core.script_hints import (
    ITERATE_OVER_SAMPLER,
    KEEP_SHORT_STEP,
    NAME_NO_CONSISTENCY,
    OPTIMIZER_ON_SERVERS,
    PUSH_AS_REHEARSED,
    PUSH_EACH_BATCH,
    PUSH_FROM_THE_START,
    PUSH_SAME_KEYS,
    give_hints,
)
from elastic_ps.node.settings import is_node
from elastic_ps.script import is_chief, num_workers, rank
from elastic_ps.system.process.quick_end import end_quickly, freeze_imports
from elastic_ps.torch.allreduce import mode
from elastic_ps.torch.data import DataLoader
from elastic_ps.torch.loading import load
from elastic_ps.torch.optimizer import Optimizer
from elastic_ps.torch.sampler import Sampler
from elastic_ps.torch.script import epochs, report

__all__ = ["DataLoader", "Optimizer", "Sampler", "epochs", "is_chief", "load", "num_workers", "rank", "report"]

give_hints(
    {
        OPTIMIZER_ON_SERVERS: "In PyTorch: wrap the optimizer in an elastic.Optimizer",
        PUSH_EACH_BATCH: "In PyTorch: call optimizer.step() there, of an elastic.Optimizer",
        PUSH_SAME_KEYS: "In PyTorch: the loss has to depend on the same parameters in all workers; add "
        "0 * parameter.sum() to it for one that some samples do not use",
        PUSH_AS_REHEARSED: "In PyTorch: the first batch of each worker trains nothing; let it call step() of each "
        "optimizer as often as any other batch does",
        PUSH_FROM_THE_START: "In PyTorch: a parameter is trained by the optimizer or changed by the script, and not "
        "both",
        ITERATE_OVER_SAMPLER: "In PyTorch: over an elastic.DataLoader or an elastic.Sampler, in elastic.epochs(n)",
        KEEP_SHORT_STEP: "In PyTorch: without drop_last=True",
        NAME_NO_CONSISTENCY: "In PyTorch: an elastic.Optimizer opens one",
    }
)

mode.offer()
if is_node():
    freeze_imports((Module, TorchOptimizer, LRScheduler))
    end_quickly()
