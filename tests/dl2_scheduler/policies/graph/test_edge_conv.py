"""Edge-conditioned convolution: the sum of a few means is the sum over edges with a matrix for each."""

import numpy as np
import pytest

from dl2_scheduler.policies.learnt.graph.edge_conv import Edges, convolved, neighbour_means

WIDTH, OUT, CHANNELS = 5, 4, 3


def graph(rng: np.random.Generator) -> tuple[Edges, np.ndarray, np.ndarray]:
    counts = np.array([3, 0, 1, 2, 6])
    edges = Edges(np.concatenate([[0], np.cumsum(counts)]), rng.integers(len(counts), size=counts.sum()))
    numbers = rng.normal(size=(counts.sum(), CHANNELS)).astype(np.float32)
    return edges, numbers, rng.normal(size=(len(counts), WIDTH)).astype(np.float32)


def test_means_of_numbers_times_values_stand_for_a_matrix_an_edge():
    rng = np.random.default_rng(0)
    edges, numbers, values = graph(rng)
    parts = rng.normal(size=(1 + CHANNELS, OUT, WIDTH))  # A_0, A_1 ... of F, one linear layer
    naive = np.zeros((len(values), OUT))
    for vertex in range(len(values)):
        for edge in range(edges.start[vertex], edges.start[vertex + 1]):
            theta = parts[0] + np.tensordot(numbers[edge], parts[1:], axes=1)
            naive[vertex] += theta @ values[edges.source[edge]] / np.diff(edges.start)[vertex]
    means = neighbour_means(edges.start, edges.source, numbers, values)
    assert means @ np.concatenate(list(parts), axis=1).T == pytest.approx(naive, abs=1e-5)


def test_a_layer_joins_a_vertex_with_what_it_heard():
    rng = np.random.default_rng(1)
    edges, numbers, values = graph(rng)
    arrays = {
        "x.heard.weight": rng.normal(size=(OUT, (1 + CHANNELS) * WIDTH)),
        "x.heard.bias": rng.normal(size=OUT),
        "x.own.weight": rng.normal(size=(OUT, WIDTH + OUT)),
        "x.own.bias": rng.normal(size=OUT),
    }
    heard = neighbour_means(edges.start, edges.source, numbers, values) @ arrays["x.heard.weight"].T
    both = np.concatenate([values, heard + arrays["x.heard.bias"]], axis=1)
    expected = np.maximum(both @ arrays["x.own.weight"].T + arrays["x.own.bias"], 0)
    assert convolved(arrays, "x", edges, numbers, values) == pytest.approx(expected, abs=1e-5)


def test_the_order_of_edges_does_not_matter():
    rng = np.random.default_rng(2)
    edges, numbers, values = graph(rng)
    before = neighbour_means(edges.start, edges.source, numbers, values)
    order = np.arange(len(edges.source))
    order[:3], order[6:] = [2, 0, 1], order[6:][::-1].copy()
    after = neighbour_means(edges.start, edges.source[order], numbers[order], values)
    assert after == pytest.approx(before, abs=1e-6)


def test_edges_know_where_they_end():
    assert Edges(np.array([0, 2, 2, 3]), np.array([1, 2, 0])).target.tolist() == [0, 0, 2]
