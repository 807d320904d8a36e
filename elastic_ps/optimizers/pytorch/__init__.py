"""These are PyTorch's optimizers, as rules for the servers: its own order of operations and roundings, without PyTorch.

The reference is `torch.optim` of PyTorch 2.13 on a CPU, with `foreach=False`, which is what it takes there.
"""

from collections.abc import Mapping

from elastic_ps.optimizers.pytorch.adam import TorchAdam, TorchAdamax, TorchNAdam, TorchRAdam
from elastic_ps.optimizers.pytorch.adaptive import TorchAdadelta, TorchAdagrad, TorchRMSprop, TorchRprop
from elastic_ps.optimizers.pytorch.averaged import TorchASGD
from elastic_ps.optimizers.pytorch.sgd import TorchSGD
from elastic_ps.optimizers.pytorch.torch_rule import TorchRule

TORCH_RULES: Mapping[str, type[TorchRule]] = {
    "torch.SGD": TorchSGD,
    "torch.Adam": TorchAdam,
    "torch.Adagrad": TorchAdagrad,
    "torch.RMSprop": TorchRMSprop,
    "torch.Adadelta": TorchAdadelta,
    "torch.Adamax": TorchAdamax,
    "torch.NAdam": TorchNAdam,
    "torch.RAdam": TorchRAdam,
    "torch.Rprop": TorchRprop,
    "torch.ASGD": TorchASGD,
}
"""By the names under which they travel; AdamW is Adam whose weight decay is decoupled."""
