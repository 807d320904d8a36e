"""This module finds Harmony's figures by their names."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from dl2_scheduler.figures.draw import Picture, save
from dl2_scheduler.figures.placement.benchmarked import (
    by_layers,
    by_neurons,
    errors_by_model,
    errors_by_samples,
    left_out,
    three_arrivals,
)
from dl2_scheduler.figures.placement.interference import beside_ctc, packed_jobs, pairs, two_policies


class HarmonyEntry(NamedTuple):
    """This is a figure of Harmony; what has to be learnt for it, a benchmark has learnt.

    Attributes:
        title: over it.
        make: draws it.
    """

    title: str
    make: Callable[[], Picture]


HARMONY_FIGURES: Mapping[str, HarmonyEntry] = {
    "harmony-1": HarmonyEntry("Harmony, figure 1: six jobs, two to a server", packed_jobs),
    "harmony-2": HarmonyEntry("Harmony, figure 2: pairs of jobs on one server", pairs),
    "harmony-4": HarmonyEntry("Harmony, figure 4: packed, spread or alone", two_policies),
    "harmony-5": HarmonyEntry("Harmony, figure 5: beside more and more CTC jobs", beside_ctc),
    "harmony-8": HarmonyEntry("Harmony, figure 8: patterns of arrivals", three_arrivals),
    "harmony-9a": HarmonyEntry("Harmony, figure 9a: errors by samples", errors_by_samples),
    "harmony-9b": HarmonyEntry("Harmony, figure 9b: errors by model", errors_by_model),
    "harmony-10a": HarmonyEntry("Harmony, figure 10a: neurons", by_neurons),
    "harmony-10b": HarmonyEntry("Harmony, figure 10b: layers", by_layers),
    "harmony-table-2": HarmonyEntry("Harmony, table II: what is left out", left_out),
}


def draw_harmony(number: str, out: Path) -> Path:
    """Make a figure of Harmony in the mechanistic world, and return its path.

    Args:
        number: of `HARMONY_FIGURES`.
        out: folder for the files.
    """
    entry = HARMONY_FIGURES[number]
    return save(entry.make(), f"{entry.title} (mechanistic world)", number, out, {"figure": number})
