"""The kvstore "dist_elastic" translates MXNet's KVStore contract onto the worker side's `KeyStore`.

"dist_elastic_sync", "dist_elastic_async" and "dist_elastic_ssp" say which consistency they expect the job to have; the
plain name takes what there is.

It subclasses MXNet's native class over an unused local handle, because `gluon.Trainer` takes no other class where
gradients are sparse, and keeps the optimizer in `_updater`, where `Trainer.load_states` looks for it.
"""

import ctypes
import os
import secrets
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mxnet as mx
from mxnet.base import _LIB, KVStoreHandle, c_str, check_call

from elastic_ps.core.compression import Compression
from elastic_ps.core.data_order import CONSISTENCIES, DataSpec
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.optimizer import Hyper
from elastic_ps.mxnet import optimizers
from elastic_ps.mxnet.arrays import Wrappers, is_sparse, wrap, wrap_rows
from elastic_ps.mxnet.errors import mxnet_errors, raises_mxnet_errors
from elastic_ps.mxnet.keys import Grouped, Key, flat, group, key_of_text, key_text, pairs
from elastic_ps.worker.script.api import Array, KeyStore
from elastic_ps.worker.script.worker_job import current_job


def open_store(consistency: str | None) -> KeyStore:
    """Return the script's next kvstore object in the job of this process; see `WorkerJob.open_store`.

    Raises:
        ConfigurationError: the process was not started as part of a job, or its consistency is another one.
    """
    job = current_job()
    if mx.random.seed not in job.seeders:
        job.seeders.append(mx.random.seed)
    return job.open_store(consistency)


@raises_mxnet_errors
class ElasticKVStore(mx.kv.KVStore):  # type: ignore[misc]  # MXNet has no types
    """An `ElasticKVStore` keeps its values on the servers of this process's elastic job.

    Where MXNet's `dist_sync` differs from its documentation, this follows the documentation. All calls return when
    their effect is complete. `priority` is accepted everywhere and means nothing: one exchange carries all keys.

    Args:
        store: the worker side; None: the next one of this process's job.

    Attributes:
        consistency: that the kvstore's name says; None: none.

    Raises:
        KVStoreError: by every method, where a request cannot be served; it names the key and the reason. It is a
            ConfigurationError, and an mx.MXNetError too.
    """

    consistency: str | None = None

    def __init__(self, store: KeyStore | None = None):
        handle = KVStoreHandle()
        check_call(_LIB.MXKVStoreCreate(c_str("local"), ctypes.byref(handle)))
        super().__init__(handle)
        self._store = open_store(self.consistency) if store is None else store
        self._local_update = False
        self._key_type: type | None = None
        self._pushed, self._outs = Wrappers(), Wrappers()

    # ---- values ----------------------------------------------------------------------------------------------------

    def init(self, key: Any, value: Any) -> None:
        """Define keys; the chief's values count."""
        values = self._one_each(key, value)
        self._store.init([key_text(key) for key in values], list(values.values()))

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """Define keys and write the job's values to `out`. Arrays that are never pushed become auxiliary state.

        Args:
            key: one or a list.
            value: the first values, one for each key; the chief's count.
            out: array, list of arrays (one per device), or a list of those.
            priority: without meaning here.
        """
        values, outs = self._one_each(key, value), self._wrapped(group(key, out), self._outs)
        self._store.broadcast([key_text(key) for key in values], list(values.values()), [outs[key] for key in values])

    def push(self, key: Any, value: Any, priority: int = 0) -> None:
        """Add gradients to the open exchange; arrays of one key are summed.

        Args:
            key: one or a list.
            value: array, list of arrays (one per device), or a list of those.
            priority: without meaning here.
        """
        wrapped = self._pushed.again(key, value)
        if wrapped is None:
            wrapped = self._wrapped(group(key, value), self._pushed)
            self._pushed.remember(key, value, wrapped)
        self._before_push(wrapped)
        self._store.push([key_text(key) for key in wrapped], list(wrapped.values()))

    def pull(self, key: Any, out: Any = None, priority: int = 0, ignore_sparse: bool = True) -> None:
        """Write the keys' values to `out`.

        Args:
            key: one or a list.
            out: array, list of arrays (one per device), or a list of those.
            priority: without meaning here.
            ignore_sparse: leave row-sparse arrays in `out` as they are.
        """
        if out is None:
            raise ConfigurationError(f"key {key}: pull needs out=, the array to write to")
        outs = self._outs.again(key, out)
        if outs is None:
            wanted = {
                name: [array for array in arrays if not (ignore_sparse and is_sparse(array))]
                for name, arrays in group(key, out).items()
            }
            outs = self._wrapped({name: arrays for name, arrays in wanted.items() if arrays}, self._outs)
            self._outs.remember(key, out, outs)
        self._store.pull([key_text(key) for key in outs], list(outs.values()))

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """Push gradients, and write the new values to `out`, or to `value` where there is no `out`.

        Each call is an exchange: give it all keys of a step as a list, or see `combined`.

        Args:
            key: one or a list.
            value: gradients: array, list of arrays (one per device), or a list of those.
            out: likewise.
            priority: without meaning here.
        """
        gradients = group(key, value)
        targets = gradients if out is None else group(key, out)
        for name in gradients:
            if any(is_sparse(array) for array in gradients[name] + targets[name]):
                raise ConfigurationError(
                    f"key {name}: pushpull takes no row-sparse arrays; use push, then row_sparse_pull"
                )
        wrapped, outs = self._wrapped(gradients, self._pushed), self._wrapped(targets, self._outs)
        self._before_push(wrapped)
        self._store.pushpull([key_text(key) for key in wrapped], list(wrapped.values()), [outs[key] for key in wrapped])

    @contextmanager
    def combined(self, overlap: bool = False) -> Iterator[None]:
        """Let pushpulls travel together while it is open; they write when it closes. See `trainer_loops`.

        Args:
            overlap: nothing writes to the gradients until then: they may be sent as the backward pass makes them.
        """
        with mxnet_errors(), self._store.combined(overlap):
            yield

    def row_sparse_pull(self, key: Any, out: Any = None, priority: int = 0, row_ids: Any = None) -> None:
        """Write the rows `row_ids` of the keys' values to row-sparse arrays.

        Args:
            key: one or a list.
            out: row-sparse array, list of them, or a list of those.
            priority: without meaning here.
            row_ids: row numbers for each array of `out`, in any order and repeated or not; one for all is enough.
        """
        if out is None or row_ids is None:
            raise ConfigurationError(f"key {key}: row_sparse_pull needs out= and row_ids=")
        targets = list(pairs(key, out))
        rows = list(flat(row_ids))
        if len(rows) == 1:
            rows *= len(targets)
        if len(rows) != len(targets):
            raise ConfigurationError(f"key {key}: {len(rows)} row_ids for {len(targets)} arrays; give one for each")
        outs: dict[Key, list[Array]] = {}
        for (name, array), numbers in zip(targets, rows, strict=True):
            outs.setdefault(name, []).append(wrap_rows(name, array, numbers))
        self._store.pull([key_text(key) for key in outs], list(outs.values()))

    # ---- optimizer -------------------------------------------------------------------------------------------------

    def set_optimizer(self, optimizer: Any) -> None:
        """Let the servers update. Its learning rate and the other values of a step follow this object (chief's).

        Where keys have been defined with another rule that one stays, with its object, and a warning says so.
        """
        spec = optimizers.translate(optimizer, key_text)
        for warning in self._store.set_optimizer(spec, self._hyper):
            warnings.warn(warning, stacklevel=2)
        if self._store.rule == spec.name:
            # Not by `_set_updater`: that would install it in the native local store, which holds nothing.
            self._updater = mx.optimizer.get_updater(optimizer)

    def _hyper(self, num_update: int) -> Hyper:
        # Through `_updater`, whose optimizer load_optimizer_states may replace.
        return optimizers.hyper(self._updater.optimizer, num_update)

    def save_optimizer_states(self, fname: str, dump_optimizer: bool = False) -> None:
        """Collect the servers' optimizer state into a file that MXNet reads too.

        Args:
            fname: written whole or not at all; every worker may name the same file. A worker that joins a running job
                does not write in its rehearsal.
            dump_optimizer: put the optimizer itself (its class, learning rate, schedule) in too.
        """
        updater = self._fresh_updater("save")
        found = self._store.optimizer_states()
        if found is None:
            return
        states = {key_of_text(key): state for key, state in found.items()}
        updater.states = optimizers.to_mxnet_states(updater.optimizer, states)
        _write_whole(Path(fname), updater.get_states(dump_optimizer))

    def load_optimizer_states(self, fname: str) -> None:
        """Give the servers the state that `save_optimizer_states`, or MXNet, wrote. The chief's file counts."""
        updater = self._fresh_updater("load")
        before = updater.optimizer
        updater.set_states(Path(fname).read_bytes())
        states = optimizers.from_mxnet_states(updater.optimizer, updater.states)
        is_from_file = updater.optimizer is not before
        if is_from_file:
            updater.optimizer.param_dict = before.param_dict  # is not in the file
            optimizers.translate(updater.optimizer, key_text)  # refuses one that the servers do not know
        else:  # nor are counts: what this optimizer has are those of a save, or of a file before
            states = {key: {name: part[name] for name in part.keys() - {"count"}} for key, part in states.items()}
        self._store.load_optimizer_states({key_text(key): state for key, state in states.items()})
        if is_from_file:
            self.set_optimizer(updater.optimizer)

    def _fresh_updater(self, verb: str) -> Any:
        """Return an updater of MXNet with this store's optimizer, for its file format."""
        if self._updater is None:
            raise ConfigurationError(
                f"cannot {verb} optimizer states: this store has no optimizer. Call set_optimizer first, or where "
                "update_on_kvstore=False use the states of the workers' own updater"
            )
        return mx.optimizer.get_updater(self._updater.optimizer)

    def _set_updater(self, updater: Callable[..., Any]) -> None:
        """Refuse an updater: values live on the servers."""
        raise ConfigurationError(
            f"cannot run the updater {updater!r} on the servers: use set_optimizer with one of MXNet's optimizers, or "
            "name your own rule as module:Class (docs/reference/mxnet.md)"
        )

    # ---- the rest of the contract ----------------------------------------------------------------------------------

    def set_gradient_compression(self, compression_params: Any) -> None:
        """Quantize gradients, and let fewer bytes of them travel (docs/reference/mxnet.md, "Compression").

        Args:
            compression_params: {"type": "2bit", "threshold": 0.5} as MXNet has it, {"type": "topk", "ratio": 0.01},
                {"type": "float16"} or {"type": "bfloat16"}.
        """
        if not isinstance(compression_params, dict):
            raise ConfigurationError(f"gradient compression {compression_params!r}: give a dictionary with its 'type'")
        self._store.set_compression(Compression.of(compression_params))

    def is_capable(self, capability: str) -> bool:
        """Return whether servers can run the optimizer: they can."""
        if capability.lower() == self.OPTIMIZER:
            return True
        raise ValueError(f"unknown capability {capability!r}; this store knows {self.OPTIMIZER!r}")

    @property
    def type(self) -> str:
        """dist_elastic_sync, dist_elastic_async or dist_elastic_ssp: MXNet looks for "dist" and "_sync" in it."""
        return f"dist_elastic_{self._store.mode}"

    @property
    def rank(self) -> int:
        """The rank of this worker; it changes when workers come and go."""
        return self._store.rank

    @property
    def num_workers(self) -> int:
        """The number of workers; it changes when workers come and go."""
        return self._store.num_workers

    @property
    def data(self) -> DataSpec | None:
        """Return how the job divides the data; None: the script draws its own batches."""
        return self._store.data

    def barrier(self) -> None:
        """Wait for all workers."""
        self._store.barrier()

    _barrier = barrier  # MXNet's name for it

    def send_command_to_servers(self, head: int, body: str) -> None:
        """Run the handler registered for `head` on every server."""
        self._store.command(head, body)

    _send_command_to_servers = send_command_to_servers  # MXNet's name for it

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _wrapped(self, grouped: Grouped, wrappers: Wrappers) -> dict[Key, list[Array]]:
        return {key: wrappers.wrap(key, arrays) for key, arrays in grouped.items()}

    def _one_each(self, keys: Any, values: Any) -> dict[Key, Array]:
        grouped, listed = group(keys, values), Counter(flat(keys))
        for key, arrays in grouped.items():
            if listed[key] > 1:
                raise ConfigurationError(f"key {key}: {listed[key]} times in the list of keys; init each key once")
            if len(arrays) > 1:
                raise ConfigurationError(f"key {key}: initialized with {len(arrays)} values; give one")
        wrapped = {key: wrap(key, arrays[0]) for key, arrays in grouped.items()}
        self._of_one_type(wrapped)
        return wrapped

    def _of_one_type(self, keys: Iterable[Key]) -> None:
        """Let a store have integers or texts for keys, as MXNet's have, not both."""
        first = self._key_type
        for key in keys:
            first = first or type(key)
            if type(key) is not first:
                raise ConfigurationError(
                    f"key {key}: it is {type(key).__name__}, but this store's keys are {first.__name__}: use one type"
                )
        self._key_type = first

    def _before_push(self, gradients: Mapping[Key, Sequence[Array]]) -> None:
        if self._updater is None and gradients and not self._local_update:
            self._store.set_local_update()
            self._local_update = True


def _write_whole(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old one or the new one. Who may read it is as the script's umask says."""
    if path.exists() and not path.is_file():  # it would be put in the place of a device
        raise ConfigurationError(f"{path} is no file, so no optimizer states are saved there: name a file")
    beside = path.parent / f".{path.name}.{secrets.token_hex(4)}"  # `tempfile` would keep it from all others
    try:
        beside.write_bytes(data)
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def register() -> None:
    """Make "dist_elastic" and its like known to MXNet, which names a class by its lower-cased `__name__`."""
    for consistency in (None, *CONSISTENCIES):
        name = f"dist_elastic_{consistency}" if consistency else "dist_elastic"
        members = {"__doc__": ElasticKVStore.__doc__, "consistency": consistency}
        mx.kv.KVStoreBase.register(type(name, (ElasticKVStore,), members))
