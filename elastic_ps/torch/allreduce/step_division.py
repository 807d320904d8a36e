"""A `StepDivision` says among which members a step is divided. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from elastic_ps.core.configuration import NodeId
from elastic_ps.core.data_order import DataSpec, share
from elastic_ps.worker.script.data_position import StepPart


class StepDivision:
    """A `StepDivision` gives those that join no samples of their first step: they come to its version behind the rest.

    While the others compute, a joiner has the last record come and applies it; so nobody waits for that, as they would
    if it computed a part of its own first. Who joins is nobody's decision: each member goes by those with whom it has
    made the step before. Where members have made other steps, as somebody died, they may divide otherwise; then the
    parts that all have told are not the step once, all see that, and divide it among all.
    """

    def __init__(self) -> None:
        self._before: frozenset[NodeId] | None = None
        self._among_all = -1  # version

    def stepped(self, roster: Iterable[NodeId] | None) -> None:
        """Take note of who has made the step before; None: that is not known."""
        self._before = None if roster is None else frozenset(roster)

    def part_of(self, part: StepPart, own: NodeId, spec: DataSpec, version: int) -> StepPart:
        """Return what this worker does of a step.

        Args:
            part: its part if the step is divided among all.
            own: this worker.
            spec: of the job's data.
            version: of the step.
        """
        if self._before is None or version == self._among_all:
            return part
        assert part.place is not None
        assert part.roster is not None
        sharing = [worker for worker in part.roster if worker in self._before]
        if not sharing or len(sharing) == len(part.roster):
            return part
        if own not in sharing:
            return replace(part, positions=range(0))
        return replace(part, positions=share(spec, part.place.step, sharing.index(own), len(sharing)))

    def is_sound(self, told: Sequence[range], part: StepPart, spec: DataSpec, version: int) -> bool:
        """Return whether the parts that members have told are the step once; else it is divided among all now.

        Args:
            told: positions of all members.
            part: of this one.
            spec: of the job's data.
            version: of the step.
        """
        assert part.place is not None
        whole = share(spec, part.place.step, 0, 1)
        reached = whole.start
        for positions in sorted(filter(len, told), key=lambda positions: positions.start):
            if positions.start != reached:
                break
            reached = positions.stop
        if reached == whole.stop:
            return True
        self._among_all = version
        return False
