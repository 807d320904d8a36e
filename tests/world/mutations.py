"""Bugs that are put into production on purpose, to see whether seeds find them (`--mutation NAME`).

Each takes away a check, a promise or a bound that somebody once thought of. A mutation names what it replaces, and how
the replacement is made of the real thing.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from coordinator.core import consequences, directives
from coordinator.core.batches import async_batches
from coordinator.core.checkpoints import ledger_voids
from coordinator.core.effects import WriteJournal
from coordinator.core.nodes import expulsions, failure_detection
from coordinator.core.plans import promotion
from coordinator.server import journal, json_lines
from elastic_ps.node import standing
from elastic_ps.server import connections, phases, service
from elastic_ps.server.blocks import applied_batches, block_store, checkpoint_snapshot
from elastic_ps.server.checkpoints import saving
from elastic_ps.server.copying import follow_source, shadows
from elastic_ps.server.migration import follow_sources
from elastic_ps.server.state import acknowledged, server_state, unreported_entries
from elastic_ps.server.updates import sync_updates
from elastic_ps.worker.script import barriers, optimizer_states, store_optimizer
from elastic_ps.worker.wire import worker_node

Make = Callable[[Any], Any]


@dataclass(frozen=True)
class Mutation:
    """A mutation replaces one thing of production.

    Attributes:
        says: what is wrong then.
        owner: the class or module that has it.
        name: of it. A function of a module is replaced wherever it was imported.
        make: makes the replacement of the real one.
    """

    says: str
    owner: Any
    name: str
    make: Make


def _always(value: Any) -> Make:
    return lambda real: lambda *arguments, **named: value


def _told_at_once(real: Any) -> Any:
    def tell(self: Any, follower: Any) -> None:
        if (required := self._required.get(follower)) is not None:
            self.told[required] = acknowledged.EVERY

    return tell


def _unsynced_ledger(real: Any) -> Any:
    return lambda self, lines, sync: real(self, lines, False)


def _unsynced_journal(real: Any) -> Any:
    def begin(self: Any, path: Any) -> None:
        real(self, path)
        self._database.execute("PRAGMA synchronous=OFF")

    return begin


def _one_more(real: Any) -> Any:
    return lambda self, follower, runs, version: real(self, follower, runs, version + 1)


def _without_states(real: Any) -> Any:
    def load(self: Any, segment: Any, *image: Any) -> None:
        real(self, segment, *image)
        for state in self.states(segment).values():
            state[:] = 0

    return load


def _as_old_as_it_was(real: Any) -> Any:
    def load(self: Any, segment: Any, data: Any, counts: Any) -> None:
        real(self, segment, data, [0] * len(counts))

    return load


def _untold_steps(real: Any) -> Any:
    def enter(self: Any, *place: Any) -> None:
        real(self, *place)
        self._node.progress.place = 0

    return enter


def _takes_all(real: Any) -> Any:
    def takes(self: Any, version: int, armed: bool) -> bool:
        real(self, version, armed)
        self._takes, self._stride = True, 1
        return True

    return takes


def _forgets_the_dead(real: Any) -> Any:
    def prepare(self: Any, *arguments: Any) -> Any:
        return replace(real(self, *arguments), dead=self.dead)

    return prepare


def _serves_stale(real: Any) -> Any:
    def judge(*arguments: Any, **named: Any) -> Any:
        verdict = real(*arguments, **named)
        return phases.FrameVerdict.SERVE if verdict is phases.FrameVerdict.STALE else verdict

    return judge


def _no_snapshot_again(real: Any) -> Any:
    def again(self: Any, link: Any) -> Any:
        source = real(self, link)
        source._streamed |= self._streamed
        return source

    return again


def _first_copy(real: Any) -> Any:
    def best(chain: Any, block: int, survey: Any, promoted: bool) -> Any:
        copies = [name for name in promotion._copies(chain, block) if (name, block) in survey.versions]
        return next((name for name in sorted(copies, reverse=True) if name in survey.living), None)

    return best


def _left_undone(real: Any) -> Any:
    def enrol(book: Any, workers: Any) -> Any:
        return replace(real(book, workers), returned=book.returned)

    return enrol


def _one_entry_more(real: Any) -> Any:
    return lambda self, sequence: real(self, sequence + 1)


def _no_generation(real: Any) -> Any:
    def connected(self: Any, server: Any) -> None:
        before = self.generation
        real(self, server)
        self.generation = before

    return connected


def _keeps_pushes(real: Any) -> Any:
    def renew(self: Any) -> None:
        old = self.gathering
        real(self)
        new = self.gathering
        for rank, worker in enumerate(new.workers):
            if worker in old.workers and old.given.shape[1] == new.given.shape[1]:
                was = old.workers.index(worker)
                new.given[rank], new.source[rank] = old.given[was], old.source[was]
                new._latest[rank], new._earlier[rank] = old._latest[was], old._earlier[was]
        new._kept, new._next = old._kept, old._next

    return renew


def _without_batches(real: Any) -> Any:
    return lambda self, segment: replace(real(self, segment), applied={})


def _saved_untold(real: Any) -> Any:
    def write(self: Any, snapshot: Any) -> None:
        snapshot.may_be_told = lambda told: True
        self._state.ledger.after_kept = lambda act: act()  # which waits for followers, too
        real(self, snapshot)

    return write


def _counts_again(real: Any) -> Any:
    def judge(self: Any, run: Any, version: int) -> Any:
        versions = self._state.store.versions[run[0] : sum(run)]
        status = self._state.store.status[run[0] : sum(run)]
        return phases.parts(status, versions >= version, np.zeros(len(versions), bool))

    return judge


def _no_book(real: Any) -> Any:
    def written(before: Any, context: Any) -> Any:
        return [
            replace(effect, book=None) if isinstance(effect, WriteJournal) else effect
            for effect in real(before, context)
        ]

    return written


def _lands_at_once(real: Any) -> Any:
    def buffers(self: Any, peer: Any, frame: Any) -> Any:
        if peer.lane != connections.EXCHANGE:
            return real(self, peer, frame)
        return self.worker_frames.buffers(peer.node, frame, peer.memory, peer.link.check_open)

    return buffers


def _skips_untold(real: Any) -> Any:
    def send(self: Any, hyper: Any, *more: Any) -> None:
        real(self, hyper and replace(hyper, factor=hyper.factor or None), *more)

    return send


def _unweighted(real: Any) -> Any:
    def weights(data: Any, auxiliary: bool, samples: Any) -> Any:
        return real(data, auxiliary, samples if data.loss == "sum" else [1] * len(samples))

    return weights


MUTATIONS = {
    "told_at_once": Mutation(
        "versions are told before followers have them", acknowledged.AcknowledgedVersions, "_tell", _told_at_once
    ),
    "acknowledged_early": Mutation(
        "what followers have acknowledged is taken for one version more",
        acknowledged.AcknowledgedVersions,
        "heard",
        _one_more,
    ),
    "hand_over_early": Mutation(
        "a hand-over waits for no follower", follow_sources.FollowSources, "_next_followers", _always([])
    ),
    "no_snapshot_again": Mutation(
        "a stream that begins again sends no snapshots", follow_source.FollowSource, "again", _no_snapshot_again
    ),
    "first_copy": Mutation("any copy is promoted, not the highest", promotion, "_best_copy", _first_copy),
    "synced_unawaited": Mutation(
        "a plan is armed before copies of its blocks are there", directives, "awaited_to_sync", _always(frozenset())
    ),
    "copies_unawaited": Mutation(
        "where a block has no follower yet, it is told without a plan's copy",
        follow_sources.FollowSources,
        "_guard",
        _always(None),
    ),
    "arrived_unawaited": Mutation(
        "a plan is committed while hand-overs are under way", directives, "awaited_arrivals", _always(frozenset())
    ),
    "followed_unawaited": Mutation(
        "a plan is committed before new followers are level", directives, "awaited_followers", _always(frozenset())
    ),
    "dead_forgotten": Mutation("what the dead send still counts", standing.Standing, "prepare", _forgets_the_dead),
    "stale_served": Mutation("pushes of older configurations are served", phases, "judge", _serves_stale),
    "pushes_kept": Mutation(
        "pushes of older configurations stay", server_state.ServerState, "new_gathering", _keeps_pushes
    ),
    "received_in_place": Mutation(
        "pushes that travel are received into memory that the worker writes to",
        service.ServerNode,
        "buffers",
        _lands_at_once,
    ),
    "counted_again": Mutation(
        "a push that comes again counts for the next step", sync_updates.SyncUpdates, "_judge", _counts_again
    ),
    "no_push_again": Mutation(
        "workers do not push again on a new connection", worker_node.WorkerNode, "connected", _no_generation
    ),
    "batch_forgotten": Mutation(
        "blocks forget which batches they have taken", applied_batches.AppliedBatches, "take", _always(None)
    ),
    "batch_left_undone": Mutation("what a dead worker held is given to nobody", async_batches, "enrol", _left_undone),
    "batches_unsaved": Mutation(
        "checkpoints lack the batches of their blocks",
        checkpoint_snapshot.CheckpointSnapshot,
        "_copy",
        _without_batches,
    ),
    "saved_untold": Mutation(
        "SAVED waits neither for followers nor for the ledger", saving.Saver, "_write", _saved_untold
    ),
    "book_unwritten": Mutation("batch requests are not journalled", consequences, "_journal", _no_book),
    "ledger_unsynced": Mutation("the ledger is not synced", json_lines.JsonLinesFile, "append", _unsynced_ledger),
    "journal_unsynced": Mutation("the journal is not synced", journal.Journal, "__init__", _unsynced_journal),
    "entry_too_many": Mutation(
        "servers drop one ledger entry more than is kept", unreported_entries.ServerLedger, "kept", _one_entry_more
    ),
    "voids_forgotten": Mutation(
        "what a restore took back counts in the ledger",
        ledger_voids.Void,
        "kept",
        lambda real: lambda self, term, version, runs: runs,
    ),
    "nobody_suspected": Mutation("silent nodes are never expelled", failure_detection, "suspicions", _always(())),
    "own_silence": Mutation(
        "a coordinator that did not run blames the others", expulsions, "_excuse_own_silence", _always(None)
    ),
    "states_forgotten": Mutation(
        "copies of a block begin without its optimizer's states", block_store.ServerBlockStore, "load", _without_states
    ),
    "counts_forgotten": Mutation(
        "states that a script loads begin to count anew", block_store.ServerBlockStore, "load_states", _as_old_as_it_was
    ),
    "steps_untold": Mutation(
        "workers do not tell which step they have begun", barriers.Barriers, "_enter", _untold_steps
    ),
    "shares_unweighted": Mutation(
        "averaged gradients of all workers count the same, however many samples they have",
        phases,
        "weights",
        _unweighted,
    ),
    "updates_uncounted": Mutation(
        "the next chief counts updates anew for its rate", optimizer_states.States, "counts", _always({})
    ),
    "states_loaded_again": Mutation(
        "a job that goes back to its checkpoint loads its scripts' states again",
        store_optimizer.StoreOptimizer,
        "load",
        lambda real: lambda self, states, begins: real(self, states, False),
    ),
    "skips_untold": Mutation(
        "followers are not told that a step is skipped", follow_source.FollowSource, "send_record", _skips_untold
    ),
    "queue_unbounded": Mutation("a joiner that lags is sent every version", shadows.Subscription, "takes", _takes_all),
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Let production have a bug while the block runs; "": none."""
    if not name:
        yield
        return
    mutation = MUTATIONS[name]
    real = getattr(mutation.owner, mutation.name)
    made = mutation.make(real)
    owners = [mutation.owner]
    if not isinstance(mutation.owner, type):
        owners = [module for module in list(sys.modules.values()) if vars(module).get(mutation.name) is real]
    for owner in owners:
        setattr(owner, mutation.name, made)
    try:
        yield
    finally:
        for owner in owners:
            setattr(owner, mutation.name, real)
