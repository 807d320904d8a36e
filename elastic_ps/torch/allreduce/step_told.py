"""`StepTold` is what each member tells all others at the end of a step."""

from collections.abc import Sequence
from dataclasses import dataclass

from elastic_ps.core.configuration import ConfigId
from elastic_ps.core.optimizer import Hyper
from elastic_ps.worker.script.data_position import StepPart
from protos import elastic_pb2 as pb

_FIXED = 5  # numbers before those of parameters

_PRESENT, _FROZEN = 1, 2
"""What is told of a parameter: none, one or both."""


@dataclass(frozen=True)
class StepTold:
    """`StepTold` is what each member tells all others at the end of a step.

    Attributes:
        version: that the step leads on from.
        positions: of the samples in the step whose gradients this member has.
        hyper: what the norm of all gradients is for; the chief's bound counts, and anybody's overflows.
        present: by parameter, whether this member has a gradient.
        numbers: of the optimizer's groups; the chief's count.
        frozen: by parameter, whether this member's script has frozen it; a gradient of before may be there yet.
    """

    version: int
    positions: range
    hyper: Hyper
    present: tuple[bool, ...]
    numbers: tuple[float, ...]
    frozen: tuple[bool, ...]

    def told(self) -> list[float]:
        """Return it as numbers, equally many of all members."""
        positions, hyper = self.positions, self.hyper
        fixed = self.version, positions.start, positions.stop, hyper.max_norm or 0, hyper.skip_overflow
        flags = (has * _PRESENT + out * _FROZEN for has, out in zip(self.present, self.frozen, strict=True))
        return [*map(float, fixed), *map(float, flags), *self.numbers]

    @staticmethod
    def of(told: Sequence[float], parameters: int) -> "StepTold":
        """Return what a member has told, of a model of so many parameters."""
        version, low, high, max_norm, skips = told[:_FIXED]
        hyper = Hyper(max_norm=max_norm or None, skip_overflow=bool(skips))
        ends = _FIXED + parameters
        flags = list(map(int, told[_FIXED:ends]))
        present, frozen = (tuple(flag & wanted > 0 for flag in flags) for wanted in (_PRESENT, _FROZEN))
        return StepTold(int(version), range(int(low), int(high)), hyper, present, tuple(told[ends:]), frozen)


def ledger_entry(number: ConfigId, part: StepPart, told: Sequence[StepTold], blocks: int) -> pb.LedgerEntry:
    """Return what the ledger is told of a step.

    Args:
        number: of the configuration that made it.
        part: of the step.
        told: by rank; each member has said which positions it contributed.
        blocks: of the job's model.
    """
    assert part.place is not None
    assert part.roster is not None
    slices = [
        pb.Slice(worker=worker, low=each.positions.start, high=each.positions.stop)
        for worker, each in zip(part.roster, told, strict=True)
        if len(each.positions)
    ]
    return pb.LedgerEntry(
        term=number.term,
        number=number.number,
        version=told[0].version,
        runs=[0, blocks],
        epoch=part.place.epoch,
        step=part.place.step,
        slices=slices,
    )
