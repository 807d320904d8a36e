"""The paper's network, as numbers: what inference needs, without a framework."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from dl2_scheduler.policies.learnt.actions import ACTIONS
from dl2_scheduler.policies.learnt.array_files import Shape
from dl2_scheduler.policies.learnt.features import F32
from dl2_scheduler.policies.learnt.paper.batched import row_width


class Layers(NamedTuple):
    """A network as the compiled loop takes it: of each layer the weights, (inputs, outputs), and the bias.

    Attributes:
        first: of the rows, one behind the other, (J * row_width, hidden).
        first_bias: its bias.
        second: (hidden, hidden).
        second_bias: its bias.
        out: (hidden, 3 J + 1).
        out_bias: its bias.
    """

    first: F32
    first_bias: F32
    second: F32
    second_bias: F32
    out: F32
    out_bias: F32


@dataclass(frozen=True)
class PaperWeights:
    """These weights are what inference needs, without a framework.

    Attributes:
        models: types that the network knows.
        minimum: see `batched.slot_of`.
        arrays: by name, as `Layers` has them.
    """

    models: tuple[str, ...]
    minimum: bool
    arrays: Mapping[str, F32]

    @property
    def layers(self) -> Layers:
        """The layers of the compiled loop."""
        return Layers(**self.arrays)

    @property
    def places(self) -> int:
        """J: jobs that the network sees at once."""
        return (len(self.arrays["out_bias"]) - 1) // ACTIONS


MOST_PLACES = 256
"""J of the largest network: its layers have J times J numbers."""


def paper_shapes(models: int, out_bias: Shape) -> dict[str, Shape]:
    """Return the shapes that a network's arrays have together, by name.

    Args:
        models: types that it knows.
        out_bias: shape of the last layer's bias in a file, by which J is known.
    """
    places = (out_bias[0] - 1) // ACTIONS if len(out_bias) == 1 else 1
    places = min(max(places, 1), MOST_PLACES)
    inputs, outputs = places * row_width(models), places * ACTIONS + 1
    units = inputs * 2 // 3
    return {
        "first": (inputs, units),
        "first_bias": (units,),
        "second": (units, units),
        "second_bias": (units,),
        "out": (units, outputs),
        "out_bias": (outputs,),
    }
