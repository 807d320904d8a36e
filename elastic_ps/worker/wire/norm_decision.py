"""The chief decides by the norm of all gradients of an exchange the factor with which servers apply them.

Servers tell it each block's sum of squares (SQUARES) and keep the gradients. When it has those of all blocks whose new
values have not come, it tells all servers the factor (FACTOR). Whoever is the chief later hears of a factor that some
server has applied already with that server's values, and decides the same.
"""

from collections.abc import Callable, Iterable, Sequence

from elastic_ps.core.configuration import NO_CONFIGURATION, ConfigId
from elastic_ps.core.gradient_norm import DecidedFactor, factor_of
from elastic_ps.core.model import Run, members
from elastic_ps.core.optimizer import Hyper


class NormDecision:
    """A `NormDecision` is about the open exchange. Not thread-safe: its owner holds a lock.

    Attributes:
        decided: factors that this worker knows of.
    """

    def __init__(self) -> None:
        self.decided = DecidedFactor()
        self._of: tuple[ConfigId, int] = (NO_CONFIGURATION, -1)  # in which configuration, and of which version
        self._hyper = Hyper()
        self._squares: dict[int, float] = {}
        self._told = True

    def take(
        self, configuration: ConfigId, version: int, runs: Iterable[Run], squares: Sequence[float], hyper: Hyper
    ) -> None:
        """Take what a server has told of gradients that it keeps.

        Args:
            configuration: in force.
            version: the open one.
            runs: the blocks of the gradients.
            squares: the sum of squares of each block.
            hyper: says what the norm is for.
        """
        if (configuration, version) != self._of:
            self._of, self._squares = (configuration, version), {}
        self._squares.update(zip(members(runs), squares, strict=True))
        self._hyper, self._told = hyper, False

    def next_factor(self, version: int, missing: Callable[[], Iterable[Run]]) -> float | None:
        """Return the factor that the servers are to be told now; None: it cannot be decided yet, or has been told.

        Args:
            version: the open one.
            missing: gives the blocks whose values of the version after it have not come.
        """
        if self._told or version != self._of[1]:
            return None
        factor = self.decided.of(version)
        if factor is None:
            if any(block not in self._squares for block in members(missing())):
                return None
            factor = factor_of(self._squares.values(), self._hyper)
            self.decided.note(version, factor)
        self._told = True
        return factor
