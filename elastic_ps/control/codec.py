"""This module converts the domain's types to the control plane's messages, and back."""

from collections.abc import Iterable, Sequence

from elastic_ps.core.configuration import ConfigId, Configuration, Member, Role
from elastic_ps.core.data_order import DataSpec
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.model import Run, Tensor
from elastic_ps.core.module_file import ModuleFile
from protos import elastic_pb2 as pb

_ROLES = {Role.WORKER: pb.WORKER, Role.SERVER: pb.SERVER}
_ROLES_BACK = {number: role for role, number in _ROLES.items()}


def config_id_to_pb(value: ConfigId) -> pb.ConfigId:
    """Encode the id of a configuration."""
    return pb.ConfigId(term=value.term, number=value.number)


def config_id_from_pb(message: pb.ConfigId) -> ConfigId:
    """Decode the id of a configuration."""
    return ConfigId(message.term, message.number)


def member_to_pb(member: Member) -> pb.Member:
    """Encode a member."""
    return pb.Member(id=member.id, role=_ROLES[member.role], host=member.host, port=member.port, machine=member.machine)


def member_from_pb(message: pb.Member) -> Member:
    """Decode a member.

    Raises:
        ConfigurationError: it has no role.
    """
    if message.role not in _ROLES_BACK:
        raise ConfigurationError(f"member {message.id!r} is neither a worker nor a server")
    return Member(message.id, _ROLES_BACK[message.role], message.host, message.port, message.machine)


def configuration_to_pb(value: Configuration) -> pb.Configuration:
    """Encode a configuration."""
    return pb.Configuration(
        id=config_id_to_pb(value.id),
        workers=[member_to_pb(member) for member in value.workers],
        servers=[member_to_pb(member) for member in value.servers],
        assignment=value.assignment,
        followers=value.followers,
    )


def configuration_from_pb(message: pb.Configuration) -> Configuration:
    """Decode a configuration."""
    return Configuration(
        config_id_from_pb(message.id),
        tuple(member_from_pb(member) for member in message.workers),
        tuple(member_from_pb(member) for member in message.servers),
        tuple(message.assignment),
        tuple(message.followers),
    )


def runs_from_pb(numbers: Sequence[int]) -> tuple[Run, ...]:
    """Decode runs of blocks, which travel as pairs of first block and count."""
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))


def runs_to_pb(runs: Iterable[Run]) -> list[int]:
    """Encode runs of blocks; see `runs_from_pb`."""
    return [number for run in runs for number in run]


def module_to_pb(value: ModuleFile) -> pb.ModuleFile:
    """Encode."""
    return pb.ModuleFile(name=value.name, path=value.path, digest=value.digest)


def module_from_pb(message: pb.ModuleFile) -> ModuleFile:
    """Decode."""
    return ModuleFile(message.name, message.path, message.digest)


def tensor_to_pb(tensor: Tensor) -> pb.Tensor:
    """Encode a tensor."""
    return pb.Tensor(
        store=tensor.store,
        key=tensor.key,
        shape=tensor.shape,
        dtype=tensor.dtype,
        auxiliary=tensor.auxiliary,
        divisible=tensor.divisible,
    )


def tensor_from_pb(message: pb.Tensor) -> Tensor:
    """Decode a tensor."""
    return Tensor(message.store, message.key, tuple(message.shape), message.dtype, message.auxiliary, message.divisible)


def data_to_pb(spec: DataSpec) -> pb.DataSpec:
    """Encode what the job trains on."""
    return pb.DataSpec(
        elastic=spec.elastic,
        samples=spec.samples,
        global_batch=spec.global_batch,
        last=spec.last,
        loss=spec.loss,
        exchanges=spec.exchanges,
        consistency=spec.consistency,
        staleness=spec.staleness,
        order=spec.order,
    )


def data_from_pb(message: pb.DataSpec) -> DataSpec:
    """Decode what the job trains on; an absent message is a job whose script draws its own batches."""
    exchanges, consistency = message.exchanges or 1, message.consistency or "sync"
    if not message.elastic:
        return DataSpec(exchanges=exchanges, consistency=consistency)
    return DataSpec(
        True,
        message.samples,
        message.global_batch,
        message.last,
        message.loss,
        exchanges,
        consistency,
        message.staleness,
        message.order,
    )
