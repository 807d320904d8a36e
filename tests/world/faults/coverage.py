"""The coverage table says how often each role met each fault in each phase, and which cells nothing has hit."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tests.world.faults.cells import IMPOSSIBLE, PHASES, ROWS, SERVERLESS_PHASES, SERVERLESS_ROWS, Cell, possible

ENOUGH = 50
"""Hits of a cell, in a night's run."""

CANNOT = "-"
"""What stands for a cell that is impossible."""

_FEW = 60
"""Cells that are named; where more were not hit the run was a short one."""


def table(hits: Iterable[Cell], serverless: bool = False) -> RenderableType:
    """Return one row for each role and kind, one column for each phase; below it what is missing.

    Args:
        hits: of jobs with servers, or of those without.
        serverless: which of the two.
    """
    found = Counter(hits)

    def field(some: Sequence[Cell]) -> str:
        return CANNOT if set(some) <= set(IMPOSSIBLE) else str(sum(found[cell] for cell in some))

    rows, phases = (SERVERLESS_ROWS, SERVERLESS_PHASES) if serverless else (ROWS, PHASES)
    drawn = grid([(role, kind) for kind, role in rows], field, phases)
    return Group(drawn, *(Text(line) for line in _missing(found, serverless)))


def grid(
    rows: Iterable[tuple[str, str]], field: Callable[[Sequence[Cell]], str], phases: Sequence[str] = PHASES
) -> Table:
    """Return a table of roles and kinds by phases.

    Args:
        rows: role and kind of each.
        field: what stands for a cell, or for all cells of a row together.
        phases: of the columns.
    """
    drawn = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for column in ("of", "fault", *phases, "all"):
        drawn.add_column(column, justify="left" if column in ("of", "fault") else "right")
    for role, kind in sorted(rows):
        row = [(role, phase, kind) for phase in phases]
        drawn.add_row(role or "the job", kind, *(field([cell]) for cell in row), field(row))
    return drawn


def _missing(found: Counter[Cell], serverless: bool) -> Iterator[str]:
    every = possible(serverless)
    never = [cell for cell in every if not found[cell]]
    few = [cell for cell in every if 0 < found[cell] < ENOUGH]
    yield f"{len(every)} cells: {len(never)} never hit, {len(few)} fewer than {ENOUGH} times; - cannot be"
    for role, kind in sorted({(role, kind) for role, _, kind in never}) if len(never) < _FEW else ():
        phases = [phase for phase in PHASES if (role, phase, kind) in never]
        yield f"never hit: {kind} of {role or 'the job'} at {', '.join(phases)}"
    for role, phase, kind in sorted(few, key=lambda cell: found[cell]) if len(few) < _FEW else ():
        yield f"hit {found[role, phase, kind]} times: {kind} of {role or 'the job'} at {phase}"
    besides = {cell: hits for cell, hits in found.items() if cell not in every and cell not in IMPOSSIBLE}
    if besides:
        where = ", ".join(sorted({f"{kind} of {role or 'the job'} at {phase}" for role, phase, kind in besides}))
        yield f"{sum(besides.values())} besides, in no cell: {where}"
    for cell, why in IMPOSSIBLE.items():
        if found[cell]:
            yield f"taken to be impossible, and hit: {cell[2]} of {cell[0]} at {cell[1]} ({why})"
