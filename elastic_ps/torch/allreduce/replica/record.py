"""A `StepRecord` is a step's reduced gradient: all members apply the same one, and so hold the same parameters."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from protos import elastic_pb2 as pb


@dataclass(frozen=True)
class StepRecord:
    """A `StepRecord` leads from one version to the next.

    Attributes:
        version: that it is applied to.
        sums: by type of elements, the gradients and statistics in the order of `Layout`.
        present: by parameter, whether anybody had a gradient of it.
        numbers: of the optimizer's groups, see `group_numbers`.
        entry: of the ledger.
    """

    version: int
    sums: Mapping[torch.dtype, torch.Tensor]
    present: tuple[bool, ...]
    numbers: tuple[float, ...]
    entry: pb.LedgerEntry
