"""`StepTold` is what each member tells all others at the end of a step."""

from collections.abc import Sequence
from dataclasses import dataclass

from elastic_ps.core.optimizer import Hyper

_FIXED = 5  # numbers before those of parameters


@dataclass(frozen=True)
class StepTold:
    """`StepTold` is what each member tells all others at the end of a step.

    Attributes:
        version: that the step leads on from.
        positions: of the samples in the step whose gradients this member has.
        hyper: what the norm of all gradients is for; the chief's counts.
        present: by parameter, whether this member has a gradient.
        numbers: of the optimizer's groups; the chief's count.
    """

    version: int
    positions: range
    hyper: Hyper
    present: tuple[bool, ...]
    numbers: tuple[float, ...]

    def told(self) -> list[float]:
        """Return it as numbers, equally many of all members."""
        positions, hyper = self.positions, self.hyper
        fixed = self.version, positions.start, positions.stop, hyper.max_norm or 0, hyper.skip_overflow
        return [*map(float, fixed), *map(float, self.present), *self.numbers]

    @staticmethod
    def of(told: Sequence[float], parameters: int) -> "StepTold":
        """Return what a member has told, of a model of so many parameters."""
        version, low, high, max_norm, skips = told[:_FIXED]
        hyper = Hyper(max_norm=max_norm or None, skip_overflow=bool(skips))
        ends = _FIXED + parameters
        present = tuple(map(bool, told[_FIXED:ends]))
        return StepTold(int(version), range(int(low), int(high)), hyper, present, tuple(told[ends:]))
