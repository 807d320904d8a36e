"""The book of batches of an `async` or `ssp` job says who holds which step of the epoch, and what is done.

A worker holds one batch at a time; its next draw says that the last one is done. So a batch is open, returned (its
holder is gone: it is given first, under its old name), done, or fresh. An epoch whose batches are all done is over:
the book then stands at the next one, of which nothing is drawn.
"""

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace

from elastic_ps.core.configuration import NodeId
from elastic_ps.core.data_order import DataSpec


@dataclass(frozen=True)
class Batch:
    """A batch is one step of the epoch, with the name that servers know it by.

    Attributes:
        step: positions [step * B, (step + 1) * B) of the epoch's permutation.
        origin: the worker that drew it first; "": nobody yet.
        number: its count among the origin's batches, from 0.
    """

    step: int
    origin: NodeId = ""
    number: int = 0


@dataclass(frozen=True)
class DrawAnswer:
    """A worker's draw `number` is answered by a batch of `epoch`, or (None) by the epoch that the job is in, as its own
    is over.
    """

    number: int
    epoch: int
    batch: Batch | None = None


@dataclass(frozen=True)
class WorkerPage:
    """A page holds what the book says of one worker.

    Attributes:
        completed: steps; a joiner starts at the least of the others', so that nobody waits for it.
        drawn: batches that it was the first to draw.
        open: the batch that it holds.
        answer: to its last answered draw: a retry gets it again.
    """

    completed: int = 0
    drawn: int = 0
    open: Batch | None = None
    answer: DrawAnswer | None = None


@dataclass(frozen=True)
class Book:
    """A book holds the batches of one epoch: see the module.

    Attributes:
        epoch: that is not over.
        fresh: steps from here on have never been drawn.
        returned: to be given before fresh ones, in this order.
        pages: by worker that takes part.
        ahead: with their epochs, batches of later ones that blocks of the checkpoint, from which the job goes on, hold.
    """

    epoch: int = 0
    fresh: int = 0
    returned: tuple[Batch, ...] = ()
    pages: Mapping[NodeId, WorkerPage] = field(default_factory=dict)
    ahead: tuple[tuple[int, Batch], ...] = ()

    @property
    def open(self) -> tuple[Batch, ...]:
        """Batches that somebody holds."""
        return tuple(page.open for page in self.pages.values() if page.open is not None)

    @property
    def named(self) -> tuple[Batch, ...]:
        """Batches that are to be given again under the name that they had."""
        return tuple(batch for batch in (*self.returned, *(batch for _, batch in self.ahead)) if batch.origin)

    @property
    def done(self) -> int:
        """Batches of the epoch that are done."""
        return self.fresh - len(self.returned) - len(self.open)


def restorable(before: Book, drawn: Iterable[tuple[int, Batch]], taken: Callable[[Batch], bool]) -> Book:
    """Return the book as a checkpoint keeps it: what is not done in all blocks is given again, under its old name.

    Blocks remember by these names what they hold, so that each of them takes each batch once, whatever part of the
    servers had it when they were saved.

    Args:
        before: the book before servers were told to save: all blocks hold what it calls done.
        drawn: epoch and batch of what was given since.
        taken: whether a block that was saved holds a batch, or some exchanges of it.
    """
    since = {(epoch, batch.step): batch for epoch, batch in drawn}
    open_ = {batch.step: batch for batch in (*before.returned, *before.open)}
    beyond = {place: batch for place, batch in since.items() if taken(batch)}
    fresh = max([before.fresh, *(step + 1 for epoch, step in beyond if epoch == before.epoch)])
    lacking = sorted({*open_, *range(before.fresh, fresh)})
    returned = tuple(since.get((before.epoch, step)) or open_.get(step) or Batch(step) for step in lacking)
    ahead = {(epoch, batch.step): batch for epoch, batch in before.ahead} | beyond
    later = tuple((epoch, batch) for (epoch, _), batch in sorted(ahead.items()) if epoch > before.epoch)
    return Book(before.epoch, fresh, returned, ahead=later)


def enrol(book: Book, workers: Set[NodeId]) -> Book:
    """Let exactly `workers` take part: what others held goes back, and who is new starts at the least.

    Returns:
        The same object where nothing changes.
    """
    if workers == book.pages.keys():
        return book
    pages = {name: page for name, page in book.pages.items() if name in workers}
    least = min((page.completed for page in pages.values()), default=0)
    pages |= {name: WorkerPage(completed=least) for name in sorted(workers - pages.keys())}
    left = [page.open for name, page in book.pages.items() if name not in workers and page.open is not None]
    return replace(book, returned=(*book.returned, *left), pages=pages)


def complete(book: Book, worker: NodeId, number: int, spec: DataSpec) -> Book:
    """Enter the batch of a worker's last draw as done, now that its next draw has come; the epoch may be over with it.

    Args:
        book: as it is.
        worker: who draws.
        number: of its draws.
        spec: of the job's data.

    Returns:
        The same object where nothing changes, as at a retry.
    """
    page = book.pages[worker]
    if page.open is None or (page.answer is not None and number <= page.answer.number):
        return book
    book = _with(book, worker, replace(page, open=None, completed=page.completed + 1))
    if book.done < spec.steps_per_epoch:
        return book
    return _turned(book)


def _turned(book: Book) -> Book:
    """Return the book at the next epoch: nothing of it is drawn but what blocks held when the job went on."""
    epoch = book.epoch + 1
    held = {batch.step: batch for other, batch in book.ahead if other == epoch}
    fresh = max(held, default=-1) + 1
    return replace(
        book,
        epoch=epoch,
        fresh=fresh,
        returned=tuple(held.get(step, Batch(step)) for step in range(fresh)),
        ahead=tuple((other, batch) for other, batch in book.ahead if other != epoch),
    )


def draw(book: Book, worker: NodeId, number: int, epoch: int | None, spec: DataSpec) -> tuple[Book, DrawAnswer | None]:
    """Answer a draw, after `complete`.

    Args:
        book: as it is.
        worker: who draws.
        number: of its draws.
        epoch: that its loop is in; None: whichever the job is in.
        spec: of the job's data.

    Returns:
        The book, and the answer; None: it has to wait.
    """
    page = book.pages[worker]
    if page.answer is not None and number == page.answer.number:
        return book, page.answer
    if epoch is not None and epoch < book.epoch:
        answer = DrawAnswer(number, book.epoch)
        return _with(book, worker, replace(page, answer=answer)), answer
    if _too_far(book, worker, spec):
        return book, None
    if (batch := _next_returned(book)) is not None:
        book = replace(book, returned=tuple(other for other in book.returned if other != batch))
    elif book.fresh < spec.steps_per_epoch:
        batch, book = Batch(book.fresh), replace(book, fresh=book.fresh + 1)
    else:
        return book, None
    if not batch.origin:
        batch = Batch(batch.step, worker, page.drawn)
        page = replace(page, drawn=page.drawn + 1)
    answer = DrawAnswer(number, book.epoch, batch)
    return _with(book, worker, replace(page, open=batch, answer=answer)), answer


def awaited(book: Book, worker: NodeId, spec: DataSpec) -> dict[NodeId, str]:
    """Return for whom a draw that `draw` does not answer waits, and, for people, why for them.

    Args:
        book: as it is.
        worker: who draws.
        spec: of the job's data.
    """
    if worker not in book.pages:
        return {}
    others = {name: page for name, page in book.pages.items() if name != worker}
    if _too_far(book, worker, spec):
        least = min(page.completed for page in others.values())
        slowest = [name for name, page in others.items() if page.completed == least]
        return dict.fromkeys(slowest, f"it is the slowest, staleness {spec.staleness}")
    holders = [name for name, page in others.items() if page.open is not None]
    return dict.fromkeys(holders, "its batch is one of the epoch's last")


def _next_returned(book: Book) -> Batch | None:
    """Return the first whose origin's earlier are done: a block that has taken one takes none of before (`Applied`)."""
    busy = {batch.origin for batch in book.open}
    for batch in book.returned:
        earlier = (other.number for other in book.returned if other.origin == batch.origin)
        if not batch.origin or (batch.origin not in busy and batch.number == min(earlier)):
            return batch
    return None


def _too_far(book: Book, worker: NodeId, spec: DataSpec) -> bool:
    """Return whether a worker has completed `staleness` steps more than the slowest of the others, under `ssp`."""
    others = [page.completed for name, page in book.pages.items() if name != worker]
    if spec.consistency != "ssp" or not others:
        return False
    return book.pages[worker].completed - min(others) >= spec.staleness


def _with(book: Book, worker: NodeId, page: WorkerPage) -> Book:
    return replace(book, pages={**book.pages, worker: page})
