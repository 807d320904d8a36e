"""This module convolves over graphs whose edges carry numbers (edge-conditioned convolution, the paper's section IV-A).

A vertex hears the mean over its neighbours w of Theta_w h_w, where Theta_w is linear in the edge's numbers e: Theta_w =
A_0 + sum_c e_c A_c. Then that mean is A_0 mean(h) + sum_c A_c mean(e_c h): means of a few numbers a vertex, and one
matrix for all, instead of a matrix for each edge.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dl2_scheduler.cluster.compiled import compiled
from dl2_scheduler.cluster.hardware.machines import Ints

F32 = NDArray[np.float32]


class Edges(NamedTuple):
    """These `Edges` end at vertices in turn: those at vertex v are `start[v]` to `start[v + 1]`.

    Attributes:
        start: of each vertex, and behind the last one, (vertices + 1,).
        source: the other end of each edge, (edges,).
    """

    start: Ints
    source: Ints

    @property
    def target(self) -> Ints:
        """Return the vertex at which each edge ends, (edges,)."""
        return np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))


@compiled
def neighbour_means(start: Ints, source: Ints, numbers: F32, values: F32) -> F32:
    """Return the means over each vertex's neighbours of their values, and of these times each of the edge's numbers.

    Args:
        start: see `Edges`.
        source: see there.
        numbers: of each edge, (edges, channels).
        values: of each vertex, (vertices, width).

    Returns:
        A row for each vertex, (vertices, (1 + channels) * width); 0 where it has no neighbour.
    """
    vertices, width = values.shape
    channels = numbers.shape[1]
    found = np.zeros((vertices, (1 + channels) * width), dtype=np.float32)
    for vertex in range(vertices):
        row = found[vertex]
        for edge in range(start[vertex], start[vertex + 1]):
            heard = values[source[edge]]
            for place in range(width):
                row[place] += heard[place]
            for channel in range(channels):
                factor, offset = numbers[edge, channel], (1 + channel) * width
                for place in range(width):
                    row[offset + place] += factor * heard[place]
        count = start[vertex + 1] - start[vertex]
        if count > 1:
            row /= np.float32(count)
    return found


def convolved(arrays: Mapping[str, F32], name: str, edges: Edges, numbers: F32, values: F32) -> F32:
    """Return what a layer makes of the vertices: relu(W [h, A_0 mean(h) + sum_c A_c mean(e_c h) + b]).

    Args:
        arrays: of the network, by name, as `learning.placement.graph.net.EdgeConv` has them.
        name: of the layer.
        edges: of the graph.
        numbers: of each edge, (edges, channels).
        values: of each vertex, (vertices, width).
    """
    means = neighbour_means(edges.start, edges.source, numbers, values)
    heard = means @ arrays[f"{name}.heard.weight"].T + arrays[f"{name}.heard.bias"]
    own = arrays[f"{name}.own.weight"]
    width = values.shape[1]
    found: F32 = np.maximum(values @ own[:, :width].T + heard @ own[:, width:].T + arrays[f"{name}.own.bias"], 0)
    return found
