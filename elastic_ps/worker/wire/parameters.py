"""A worker comes to hold the job's parameters by declaring them, by pulling them, or by following as a shadow."""

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass

from elastic_ps.control import codec
from elastic_ps.core.configuration import NO_CONFIGURATION, NodeId
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.model import members, runs
from elastic_ps.transport.base import Buffer
from elastic_ps.transport.frame_metas import InitMeta, PullMeta
from elastic_ps.worker.wire.worker_node import WorkerNode
from protos import elastic_pb2 as pb


def enter(node: WorkerNode) -> None:
    """Begin as a member of a new or restored job, or as a shadow of a running one."""
    node.wait(lambda: node.is_member or node.is_shadow)
    node.founders = len(node.configuration.workers)
    if not node.inbox.model.blocks:
        node.inbox.begin(0)
        return

    def ready() -> bool:
        return node.install_next() or node.inbox.version is not None

    if node.is_member or not node.is_sync:  # the servers hold a checkpoint's values, or those of no common version
        _obtain(node, ready, lambda: _pull(node, node.version, members(node.inbox.missing(node.version))), node.version)
    else:
        node.wait(ready)


def follow(node: WorkerNode) -> None:
    """Say that a joiner has rehearsed, and return when it is a member that is up to date."""
    if node.is_member:
        return
    told = NO_CONFIGURATION

    def synced() -> bool:
        prepared = node.standing.prepared
        return prepared is not None and prepared.id != told and node.inbox.version is not None

    def lost() -> bool:  # the job went on without this joiner, which dropped what it held of the configuration before
        return node.is_shadow and not node.is_sync and node.inbox.version is None

    while not node.is_member:
        if lost():
            enter(node)
        if synced():
            assert node.standing.prepared is not None
            told = node.standing.prepared.id
            node.session.acknowledge(pb.SYNCED, told, node.version)
        node.wait(lambda: node.install_next() or node.is_member or synced() or lost())

    def caught_up() -> bool:
        while node.install_next():
            pass
        return node.membership.is_current

    if node.is_sync:
        node.wait(caught_up, lambda: node.membership.unheard)
    else:
        refresh(node)


def refresh(node: WorkerNode) -> None:
    """Take the values of the moment, which is one more version of this worker's: where there is no common version.

    What others have defined and given no value yet is nobody's: they may have died of it, or wait for this worker to
    give one. A server answers for what is asked of it together when it has all of that.
    """
    version = node.version + 1

    def ready() -> bool:
        return node.install(node.inbox.next_after()) or node.version == version

    _obtain(node, ready, lambda: _pull(node, version, members(node.inbox.behind(version))), version)


@dataclass(frozen=True)
class FirstValues:
    """`FirstValues` are what this worker's script has initialized of one key store.

    Attributes:
        keys: all of them, whatever has been declared before.
        values: of a key, its bytes with padding, as they stand in a slab.
        whole: the script initializes no others later: these are its whole model.
    """

    keys: Set[str]
    values: Callable[[str], Buffer]
    whole: bool = False


def declare(node: WorkerNode, request: pb.DeclareRequest, first: FirstValues, gives: bool = False) -> list[str]:
    """Declare tensors of a key store, and come to hold their values; see `obtain`.

    Args:
        node: this worker.
        request: without caller.
        first: what the script has initialized of the key store.
        gives: see `obtain`.

    Returns:
        Warnings about settings that differ from the job's.

    Raises:
        ConfigurationError: another worker has initialized other keys, or the job goes on with another model.
    """
    _check_whole(node, request.store, first)
    reply = node.ask_coordinator(lambda: node.session.declare(request))
    with node.changed:
        node.check()  # an armed plan goes on without waiting for the step, and this worker may have left by it
        node.data = codec.data_from_pb(request.data)
        node.extend(reply.tensors, reply.assignment)
        takes_part = node.is_member
        _check_keys(node, request.store, first.keys)
    if takes_part:
        obtain(node, request.store, first, gives)
    return list(reply.warnings)


def obtain(node: WorkerNode, store: int, first: FirstValues, gives: bool) -> None:
    """Come to hold the values of all keys that the script has initialized in a key store.

    Where nobody has given them yet, the chief gives first values, and all take them. Where batches are drawn the chief
    may have none any more, and so not come to define a key of mid job: then whoever defines it `gives` its own, and
    servers keep those that come first.

    Args:
        node: this worker, a member.
        store: number of the key store.
        first: what the script has initialized of it.
        gives: this worker gives first values whether it is the chief or not.
    """
    with node.changed:
        own = [node.inbox.model.index[store, key] for key in first.keys]

    def lacking() -> list[int]:  # of the script's own keys: others may be ahead, and have more
        return [index for index in own if not node.inbox.holds(index)]

    def request_values() -> None:
        new, inbox = lacking(), node.inbox
        if gives or node.is_chief:
            _initialize(node, new, first)
        missing = members(inbox.missing(node.version))
        _pull(node, node.version, [block for block in missing if inbox.model.blocks[block].tensor in new])

    _obtain(node, lambda: not lacking(), request_values, node.version)


def _check_whole(node: WorkerNode, store: int, first: FirstValues) -> None:
    """Refuse a script of another model than the job has, before its tensors are the job's: they would begin anew."""
    listed = [tensor.key for tensor in node.inbox.model.tensors if tensor.store == store]
    if node.inherited and first.whole and (lacking := [key[2:] for key in listed if key not in first.keys]):
        raise ConfigurationError(
            f"the job has {lacking[0]}, which this script's model lacks: give all workers the same script, and restore "
            "with the model that was saved. To begin with some of its weights, write them by `elasticctl export`, and "
            "load those into the model of a new job"
        )


def _check_keys(node: WorkerNode, store: int, keys: Set[str]) -> None:
    """Check that all scripts of a new job initialize the same keys; one that is ahead has more, at the end."""
    listed = [tensor.key for tensor in node.inbox.model.tensors if tensor.store == store]
    foreign = [key for key in listed[: len(keys)] if key not in keys]
    if foreign and not node.inherited:
        rank = node.configuration.ranks.get(node.session.node, "of a joiner")
        lacking = [key[2:] for key in listed[len(keys) :] if key in keys]
        raise ConfigurationError(
            f"key {foreign[0][2:]}: another worker has initialized it in key store {store} where this one (rank "
            f"{rank}) has initialized {', '.join(lacking)}; init the same keys in the same order in every worker"
        )


def _obtain(node: WorkerNode, ready: Callable[[], bool], request: Callable[[], None], version: int) -> None:
    """Ask for values until they are here: again after a lost connection, and in a new configuration."""

    def lacking() -> dict[NodeId, str]:
        return node.values_of(version)

    while True:
        with node.changed:
            node.check()
            if ready():
                return
            generation = node.generation
            request()
        node.wait(lambda generation=generation: ready() or node.generation != generation, lacking)  # type: ignore[misc]


def _initialize(node: WorkerNode, new: Sequence[int], first: FirstValues) -> None:
    model = node.inbox.model
    for tensor in new:
        whole = memoryview(first.values(model.tensors[tensor].key)).cast("B")  # type: ignore[arg-type]  # numpy arrays
        base = model.blocks[model.blocks_of[tensor].start].position
        for server, blocks in _by_server(node, model.blocks_of[tensor]).items():
            for run in runs(blocks):
                span = model.span(run)
                frame = node.frame(InitMeta(runs=(run,)), node.version)
                node.peers.send(server, frame, [whole[span.start - base : span.stop - base]])


def _pull(node: WorkerNode, version: int, wanted: Iterable[int]) -> None:
    """Ask for blocks of a version, those of a server and a key store together."""
    for server, blocks in _by_server(node, wanted).items():
        for of_store in node.inbox.model.by_store(blocks).values():
            node.peers.send(server, node.frame(PullMeta(runs=tuple(runs(of_store))), version))


def _by_server(node: WorkerNode, blocks: Iterable[int]) -> dict[NodeId, list[int]]:
    grouped: dict[NodeId, list[int]] = {}
    for block in blocks:
        grouped.setdefault(node.configuration.primary(block), []).append(block)
    return grouped
