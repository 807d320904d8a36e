"""The hunt for bugs that are planted: one seed after the other, until one finds it."""

from collections.abc import Sequence

from tests.world.many import each_result
from tests.world.mutations import MUTATIONS

ALL = "all"


def hunt(name: str, seeds: Sequence[int], faults: int, processes: int, mode: str = "") -> int:
    """Say of a planted bug, or of `ALL`, which seed finds it; return 1 where one is not found, else 0.

    Args:
        name: of the mutation.
        seeds: of the worlds.
        faults: that each job meets, at most.
        processes: that run them; 0: one on each core.
        mode: of every job, see `DRAWS`.
    """
    names = list(MUTATIONS) if name == ALL else [name]
    missed = [each for each in names if not _is_found(each, seeds, faults, processes, mode)]
    print(f"{len(names) - len(missed)} of {len(names)} found" + "".join(f"; not {each}" for each in missed))
    return 1 if missed else 0


def _is_found(name: str, seeds: Sequence[int], faults: int, processes: int, mode: str) -> bool:
    tried = 0
    with each_result(seeds, faults, processes, name, mode) as each:
        for result in each:
            tried += 1
            if result.failures:
                break
    why = f"seed {result.draw.seed}: {result.failures[0]}" if result.failures else "not found"
    print(f"{name} ({MUTATIONS[name].says}), {tried} seeds: {why}", flush=True)
    return bool(result.failures)
