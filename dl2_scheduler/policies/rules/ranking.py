"""Who comes first of many, asked again and again while a few of them change: a scan that remembers.

Numbers lie in blocks. Of each block its first is remembered, for each kind of question, until one of the block changes;
so a question looks at the blocks' firsts, and whole only at blocks that changed. That is about the square root of what
a plain scan looks at, and its answer, ties included.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.compiled import inlined
from dl2_scheduler.cluster.free_resources import NOWHERE, Amounts, fits_on

Ints = NDArray[np.int64]

_LEAST_BLOCK = 16  # a scan of so few is as fast as looking up what one found


class Ranking(NamedTuple):
    """A `Ranking` is what is remembered.

    Attributes:
        size: numbers in a block; the last one may have fewer.
        changes: of each block, how often one of its numbers has changed, (blocks,).
        seen: of each question and block, the changes when it was scanned last, (questions, blocks).
        first: what that scan found, or NOWHERE, (questions, blocks).
    """

    size: int
    changes: Ints
    seen: Ints
    first: Ints


@inlined
def ranking(questions: int, numbers: int) -> Ranking:
    """Return a ranking that remembers nothing yet.

    Args:
        questions: kinds of them.
        numbers: that are ranked.
    """
    size = max(_LEAST_BLOCK, int(np.sqrt(numbers)))
    blocks = (numbers + size - 1) // size
    seen = np.full((questions, blocks), -1)
    return Ranking(size, np.zeros(blocks, dtype=np.int64), seen, np.empty_like(seen))


@inlined
def changed(ranks: Ranking, number: int) -> None:
    """Tell that the key of a number, or what is free at it, is another now."""
    ranks.changes[number // ranks.size] += 1


@inlined
def first_of(ranks: Ranking, question: int, keys: Amounts, sign: float, free: Amounts, demand: Amounts) -> int:
    """Return the number with the least sign * key of those where a demand fits, the lower of equals; or NOWHERE.

    Args:
        ranks: that was told every change.
        question: number of this one, which has the same sign and demand each time.
        keys: of all numbers; infinity: it comes nowhere.
        sign: 1.0: the least key comes first; -1.0: the greatest.
        free: amount at each number, (numbers, resources).
        demand: amount that is needed, (resources,); of no resource: it fits everywhere.
    """
    best, best_key = NOWHERE, np.inf
    for block in range(len(ranks.changes)):
        if ranks.seen[question, block] != ranks.changes[block]:
            ranks.seen[question, block] = ranks.changes[block]
            ranks.first[question, block] = _first_of_block(block * ranks.size, ranks.size, keys, sign, free, demand)
        number = ranks.first[question, block]
        if number != NOWHERE and sign * keys[number] < best_key:
            best, best_key = number, sign * keys[number]
    return best


@inlined
def _first_of_block(start: int, size: int, keys: Amounts, sign: float, free: Amounts, demand: Amounts) -> int:
    best, best_key = NOWHERE, np.inf
    for number in range(start, min(start + size, len(keys))):
        key = sign * keys[number]
        if key < best_key and fits_on(free, number, demand):
            best, best_key = number, key
    return best
