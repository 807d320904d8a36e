"""Members give one another a step's record, or all that they hold, by broadcasts of their group."""

import json
from typing import Any

import torch

from elastic_ps.torch.allreduce.group import WorkerGroup
from elastic_ps.torch.allreduce.group_state import GroupState
from elastic_ps.torch.allreduce.replica.record import StepRecord
from elastic_ps.torch.allreduce.replica.replica import Replica
from elastic_ps.torch.allreduce.replica.state_bytes import pack, unpack
from elastic_ps.torch.allreduce.summing.layout import Layout
from protos import elastic_pb2 as pb


def give_record(group: WorkerGroup, record: StepRecord) -> None:
    """Give a record to all members."""
    told = {
        "version": record.version,
        "present": record.present,
        "numbers": record.numbers,
        "entry": record.entry.SerializeToString().hex(),
        "lengths": {_name(dtype): len(whole) for dtype, whole in record.sums.items()},
    }
    give_told(group, told)
    for whole in record.sums.values():
        group.broadcast(whole, group.rank)


def take_record(group: WorkerGroup, giver: int, layout: Layout) -> StepRecord:
    """Take the record that `give_record` gives.

    Args:
        group: of the members.
        giver: its rank.
        layout: of the sums.
    """
    told = take_told(group, giver)
    sums = {dtype: torch.empty(told["lengths"][_name(dtype)], dtype=dtype, device="cpu") for dtype in layout.lengths}
    for whole in sums.values():
        group.broadcast(whole, giver)
    entry = pb.LedgerEntry.FromString(bytes.fromhex(told["entry"]))
    return StepRecord(told["version"], sums, tuple(told["present"]), tuple(told["numbers"]), entry)


def state_of(replica: Replica, state: GroupState) -> torch.Tensor:
    """Return the bytes of all that this worker holds."""
    return pack(replica, told_of(state))


def told_of(state: GroupState) -> dict[str, Any]:
    """Return the version that a worker holds, with the ledger's end."""
    return {
        "version": state.held,
        "ledger": state.ledger.name,
        "entries": [entry.SerializeToString().hex() for entry in state.ledger.entries],
    }


def give_state(group: WorkerGroup, packed: torch.Tensor) -> None:
    """Give what `state_of` has packed to all members."""
    give_bytes(group, packed)


def take_state(group: WorkerGroup, giver: int) -> torch.Tensor:
    """Take the bytes that `give_state` gives; `install` makes a worker hold them."""
    return take_bytes(group, giver)


def install(packed: torch.Tensor, replica: Replica, state: GroupState) -> int:
    """Make a worker hold what another has given; return the version.

    Args:
        packed: by `state_of`.
        replica: is overwritten.
        state: the worker's.
    """
    return take_over(unpack(replica, packed), state)


def take_over(told: dict[str, Any], state: GroupState) -> int:
    """Let a worker have the ledger's end that `told_of` tells; return the version."""
    entries = [pb.LedgerEntry.FromString(bytes.fromhex(entry)) for entry in told["entries"]]
    state.ledger.begin(told["ledger"], entries)
    return int(told["version"])


def give_bytes(group: WorkerGroup, raw: torch.Tensor) -> None:
    """Give bytes to all members."""
    group.broadcast(torch.tensor([len(raw)], dtype=torch.int64, device="cpu"), group.rank)
    group.broadcast(raw, group.rank)


def take_bytes(group: WorkerGroup, giver: int) -> torch.Tensor:
    """Take the bytes that the member of rank `giver` gives."""
    length = torch.zeros(1, dtype=torch.int64, device="cpu")
    group.broadcast(length, giver)
    raw = torch.empty(int(length), dtype=torch.uint8, device="cpu")
    group.broadcast(raw, giver)
    return raw


def give_told(group: WorkerGroup, told: dict[str, Any]) -> None:
    """Give what consists of JSON's types to all members."""
    give_bytes(group, torch.frombuffer(bytearray(json.dumps(told).encode()), dtype=torch.uint8))


def take_told(group: WorkerGroup, giver: int) -> dict[str, Any]:
    """Take what the member of rank `giver` gives by `give_told`."""
    told: dict[str, Any] = json.loads(take_bytes(group, giver).numpy().tobytes())
    return told


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
