"""A `WorkerKeyStore` holds the keys of one key store of the script (see `KeyStore` in `api`)."""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elastic_ps.core.compression import Compression
from elastic_ps.core.data_order import DataSpec
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.model import Tensor
from elastic_ps.core.optimizer import Hyper, OptimizerSpec
from elastic_ps.core.script_hints import OPTIMIZER_ON_SERVERS
from elastic_ps.core.script_text import check_text
from elastic_ps.native.threads import Copy, copy_all
from elastic_ps.worker.script.api import Array
from elastic_ps.worker.script.early_sends import Pushpull, send_as_ready
from elastic_ps.worker.script.key_checks import Kind, check_arrays, check_skipping, check_trained
from elastic_ps.worker.script.optimizer_states import State
from elastic_ps.worker.script.process_ending import exits
from elastic_ps.worker.script.staging import Key
from elastic_ps.worker.script.store_job import StoreJob
from elastic_ps.worker.script.store_optimizer import UNDIVIDED, StoreOptimizer
from elastic_ps.worker.script.values import chosen_rows, cut, padded, settle, write_at_once
from elastic_ps.worker.wire.parameters import FirstValues

log = logging.getLogger(__name__)


class WorkerKeyStore:
    """A `WorkerKeyStore` is what an adapter calls as `KeyStore`.

    Args:
        job: this worker's.
        number: number of the key store, in order of creation.

    Attributes:
        declared: the job knows the keys.
        compression: of gradients; None: they travel as they are.
        skip_overflow: see `KeyStore.set_skip_overflow`.
        optimizer: the key store's optimizer, on the servers.
    """

    def __init__(self, job: StoreJob, number: int):
        self.declared = False
        self.compression: Compression | None = None
        self.skip_overflow = False
        self.optimizer = StoreOptimizer(job.node, number)
        self._job = job
        self._number = number
        self._keys: dict[str, Kind] = {}
        self._first: dict[str, NDArray[Any]] = {}  # its values, until the job's are here
        self._parameters: dict[str, list[Array]] = {}  # the script's own arrays of each key, from broadcast
        self._pulled: dict[str, list[Array]] = {}  # those to which the rehearsal's last values of each key went
        self._auxiliary: frozenset[str] | None = None  # None: what is broadcast and never pushed
        self._averaged: frozenset[str] = frozenset()  # what the job has as auxiliary, once the rehearsal is over
        self._kept: frozenset[str] = frozenset()  # whose arrays are the script's own to change
        self._outs: dict[str, list[Array]] = {}  # of the open exchange
        self._early: set[str] = set()  # keys of the coming pushpull whose gradients have been sent
        self._combining = False
        self._late: list[Pushpull] | None = None  # what pushpulls have asked for while gradients may be read late
        self._local = False

    # ---- KeyStore --------------------------------------------------------------------------------------------------

    def init(self, keys: Sequence[str], arrays: Sequence[Array]) -> None:
        """See `KeyStore.init`."""
        for key in keys:  # where one is refused none counts: the script may go on, and init the others again
            check_text("key", key[2:])
            if key in self._keys:
                raise ConfigurationError(f"key {key[2:]}: initialized twice; init each key once")
        self._first |= {key: np.array(array.read()) for key, array in zip(keys, arrays, strict=True)}
        self._keys |= {key: (self._first[key].shape, self._first[key].dtype.name) for key in keys}
        if keys and not self._job.staging.rehearsing:
            try:
                self._declare_keys([self._tensor(key) for key in keys])
            except Exception:  # the job has none of them: the script may mend it and define them again
                self._keys = {key: kind for key, kind in self._keys.items() if key not in keys}
                raise
            finally:
                self._first.clear()

    def broadcast(self, keys: Sequence[str], arrays: Sequence[Array], outs: Sequence[Sequence[Array]]) -> None:
        """See `KeyStore.broadcast`."""
        kinds = {key: (tuple(array.shape), array.dtype) for key, array in zip(keys, arrays, strict=True)}
        check_arrays(kinds, keys, outs, "broadcast to an array")
        self.init(keys, arrays)
        self._parameters.update((key, list(targets)) for key, targets in zip(keys, outs, strict=True))
        self._write((key, targets) for key, targets in zip(keys, outs, strict=True) if key not in self._kept)

    def set_auxiliary(self, keys: Collection[str]) -> None:
        """See `KeyStore.set_auxiliary`."""
        self._auxiliary = frozenset(keys)

    def keep(self, keys: Collection[str]) -> None:
        """See `KeyStore.keep`."""
        self._kept = frozenset(keys)

    def push(self, keys: Sequence[str], gradients: Sequence[Sequence[Array]]) -> None:
        """See `KeyStore.push`."""
        self._stage_gradients(keys, gradients, None)

    def pull(self, keys: Sequence[str], outs: Sequence[Sequence[Array]]) -> None:
        """See `KeyStore.pull`."""
        self._note_outs(keys, outs)
        self._stage_late()
        self._job.buffer.close_if_staged((self._number, key) for key in keys)
        self._write(zip(keys, outs, strict=True))

    def pushpull(
        self, keys: Sequence[str], gradients: Sequence[Sequence[Array]], outs: Sequence[Sequence[Array]]
    ) -> None:
        """See `KeyStore.pushpull`."""
        self._note_outs(keys, outs)
        if self._late is not None:
            self._check_gradients(keys, gradients)
            self._late += map(Pushpull, keys, gradients, outs)
            return
        if self._early:
            left = [number for number, key in enumerate(keys) if key not in self._early]
            self._outs.update((key, list(targets)) for key, targets in zip(keys, outs, strict=True))
            self._early.clear()
            self._stage_gradients([keys[number] for number in left], [gradients[number] for number in left], None)
        else:
            self._stage_gradients(keys, gradients, outs)
        if not self._combining:
            self._job.buffer.close_exchange()

    def push_early(self, keys: Sequence[str], ready: Sequence[str], gradients: Sequence[Sequence[Array]]) -> bool:
        """See `KeyStore.push_early`."""
        buffer, named = self._job.buffer, [(self._number, key) for key in keys]
        if not self._early and not buffer.may_send_early(named):
            return False
        for key, arrays in zip(ready, gradients, strict=True):
            buffer.add((self._number, key), arrays)
        self._early.update(ready)
        buffer.send_early(frozenset(named), [(self._number, key) for key in ready])
        return True

    def drop_early(self) -> None:
        """See `KeyStore.drop_early`."""
        if self._early:
            self._early.clear()
            self._job.buffer.drop_staged()

    @contextmanager
    def combined(self, overlap: bool = False) -> Iterator[None]:
        """See `KeyStore.combined`."""
        self._combining, self._late = True, [] if overlap else None
        try:
            yield
            self._stage_late()
        except BaseException:
            self._job.buffer.drop_staged()
            self._outs.clear()
            raise
        finally:
            self._combining, self._late = False, None
        self._job.buffer.close_exchange()

    def set_optimizer(self, spec: OptimizerSpec, hyper: Callable[[int], Hyper]) -> list[str]:
        """See `KeyStore.set_optimizer`."""
        if self.declared and self.rule and spec.name != self.rule:
            return [f"optimizer {spec.name} is ignored, the job has {self.rule} and its states"]
        warnings = self._declare([], spec) if self.declared else []
        self.optimizer.set(spec, hyper)
        return warnings

    @property
    def rule(self) -> str:
        """See `KeyStore.rule`."""
        return self.optimizer.spec.name if self.optimizer.spec is not None else ""

    def set_compression(self, compression: Compression) -> None:
        """See `KeyStore.set_compression`."""
        check_skipping(compression, self.skip_overflow)
        self.compression = compression

    def set_skip_overflow(self, skip: bool) -> None:
        """See `KeyStore.set_skip_overflow`."""
        check_skipping(self.compression, skip)
        self.skip_overflow = skip

    def set_local_update(self) -> None:
        """See `KeyStore.set_local_update`."""
        if not self._job.is_sync:
            raise ConfigurationError(
                f'consistency "{self.mode}" needs {OPTIMIZER_ON_SERVERS}, which update on each push: call '
                "set_optimizer before the first push"
            )
        self._local = True
        if self._parameters and self.declared:  # of which servers have no more than sums: nobody may save those
            self._declare([], self.optimizer.spec)

    def barrier(self) -> None:
        """See `KeyStore.barrier`."""
        self._job.barrier()

    def optimizer_states(self) -> dict[str, State] | None:
        """See `KeyStore.optimizer_states`."""
        self._job.buffer.close_exchange()
        if not self._job.node.is_member:
            return None
        return self.optimizer.states()

    def load_optimizer_states(self, states: dict[str, State]) -> None:
        """See `KeyStore.load_optimizer_states`."""
        self._job.buffer.close_exchange()
        if self._job.staging.rehearsing:
            self.optimizer.load_later(states)
        else:
            self.optimizer.load(states, self._job.begins)

    def command(self, head: int, body: str) -> None:
        """See `KeyStore.command`."""
        with exits():
            node = self._job.node
            node.ask_coordinator(lambda: node.session.command(head, body))

    @property
    def factor(self) -> float:
        """See `KeyStore.factor`."""
        factor = self._job.node.norm.decided.of(self._job.node.version - 1)
        return 1.0 if factor is None else factor

    @property
    def rank(self) -> int:
        """See `KeyStore.rank`."""
        return self._job.rank

    @property
    def num_workers(self) -> int:
        """See `KeyStore.num_workers`."""
        return self._job.num_workers

    @property
    def mode(self) -> str:
        """See `KeyStore.mode`."""
        return self._job.consistency

    @property
    def data(self) -> DataSpec | None:
        """See `KeyStore.data`."""
        return self._job.spec

    # ---- for the job -----------------------------------------------------------------------------------------------

    def declare_rehearsed(self, pushed: frozenset[Key]) -> None:
        """Declare what the rehearsal used, auxiliary state as such.

        Args:
            pushed: keys that the rehearsal has pushed.
        """
        auxiliary = self._auxiliary
        if auxiliary is None:
            auxiliary = frozenset(key for key in self._parameters if (self._number, key) not in pushed)
        self._declare_keys([self._tensor(key, auxiliary=key in auxiliary) for key in self._keys])

    @property
    def first_values(self) -> FirstValues:
        """The script's own values; who knows which keys are auxiliary knows the whole model."""
        return FirstValues(self._keys.keys(), lambda key: padded(self._first[key]), whole=self._auxiliary is not None)

    @property
    def updates_locally(self) -> bool:
        """Return whether the optimizer lives in the workers."""
        return self._local

    def auxiliary(self) -> Iterator[tuple[Key, Array]]:
        """Yield the auxiliary keys with this worker's array of each."""
        model = self._job.node.inbox.model
        for key, arrays in self._parameters.items():
            if model.tensors[model.index[self._number, key]].auxiliary:
                yield (self._number, key), arrays[0]

    def load_rehearsed(self) -> None:
        """Load what the script wanted loaded in its rehearsal, which is over: the job's values are here."""
        self._first.clear()
        self._averaged = frozenset(key for (_, key), _ in self.auxiliary())
        self.optimizer.load_now(self._job.begins)

    def write_back(self, keys: Iterable[Key]) -> None:
        """Write the new values of `keys` to the arrays in which the script awaits them: an exchange is installed."""
        self._write((key, self._outs.pop(key, ())) for _, key in keys)
        self._write((key, self._parameters[key]) for (_, key), _ in self.auxiliary())

    def write_parameters(self) -> None:
        """Write the job's values to the script's own arrays: a script that only pulls has given none to broadcast."""
        self._outs.clear()
        own = self._pulled | self._parameters
        left = {key for key in own if key in self._kept or (self._local and self._pushed(key))}
        self._write((key, arrays) for key, arrays in own.items() if key not in left)

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _pushed(self, key: str) -> bool:
        return any((self._number, key) in keys for keys in self._job.staging.learnt)

    def _tensor(self, key: str, auxiliary: bool = False) -> Tensor:
        shape, dtype = self._keys[key]
        return Tensor(self._number, key, shape, dtype, auxiliary, divisible=self.rule not in UNDIVIDED)

    def _declare_keys(self, tensors: list[Tensor]) -> None:
        for warning in self._declare(tensors, self.optimizer.spec):
            log.warning("%s", warning)

    def _declare(self, tensors: list[Tensor], spec: OptimizerSpec | None) -> list[str]:
        text = spec.to_json() if spec else ""
        warnings = self._job.declare(self._number, tensors, text, self._local, self.first_values)
        self.declared = True
        return warnings

    def _stage_gradients(
        self, keys: Sequence[str], gradients: Sequence[Sequence[Array]], outs: Sequence[Sequence[Array]] | None
    ) -> None:
        self._check_gradients(keys, gradients)
        settle((array for arrays in gradients for array in arrays), to_write=False)
        named = [(self._number, key) for key in keys]
        done = self._job.buffer.add_all(named, gradients) if named else []
        try:
            for number, (key, arrays) in enumerate(zip(named, gradients, strict=True)):
                if not done[number]:
                    self._job.buffer.add(key, arrays)  # which may close the exchange before, with its own outs
                if outs is not None:
                    self._outs[keys[number]] = list(outs[number])
        finally:
            self._job.buffer.finish_adding()

    def _stage_late(self) -> None:
        """Stage what has waited: where there is something to overlap, portion by portion, as gradients become ready."""
        late, self._late = self._late, None
        if not late:
            return
        if send_as_ready(self._job.buffer, self._number, late):
            self._outs.update((item.key, list(item.outs)) for item in late)
        else:
            self._stage_gradients([i.key for i in late], [i.gradients for i in late], [i.outs for i in late])

    def _note_outs(self, keys: Sequence[str], outs: Sequence[Sequence[Array]]) -> None:
        check_arrays(self._keys, keys, outs, "pulled")
        if self._job.staging.rehearsing:
            whole = ([out for out in targets if out.rows is None] for targets in outs)
            self._pulled.update(zip(keys, whole, strict=True))

    def _check_gradients(self, keys: Sequence[str], gradients: Sequence[Sequence[Array]]) -> None:
        check_arrays(self._keys, keys, gradients, "pushed")
        check_trained(self._averaged, keys)

    def _write(self, wanted: Iterable[tuple[str, Sequence[Array]]]) -> None:
        """Write the job's values of keys to arrays."""
        listed = [(key, target) for key, targets in wanted for target in targets]
        settle((target for _, target in listed), to_write=True)
        left = list(compress(listed, ~write_at_once(self._job.node, self._number, listed)))
        held = self._job.parts(self._number, {key for key, _ in left})
        copies: list[Copy] = []
        for key, target in left:
            parts = held[key] or [self._first[key].reshape(-1)]
            memory = target.memory()
            if target.rows is not None:
                target.write(chosen_rows(parts, target))
            elif memory is None:
                whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
                target.write(whole.reshape(target.shape))
            else:
                flat = memory.reshape(-1)
                copies += [(flat, parts[0])] if len(parts) == 1 else cut(flat, parts)
        copy_all(copies)
        with exits():
            self._job.node.check_values()
