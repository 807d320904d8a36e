import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_ps.core.data_order import DataSpec, Place, indices, permutation, place, share
from elastic_ps.core.errors import ConfigurationError

specs = st.builds(
    DataSpec,
    elastic=st.just(True),
    samples=st.integers(8, 300),
    global_batch=st.integers(1, 8),
    last=st.sampled_from(["short", "drop", "wrap"]),
    loss=st.just("sum"),
    exchanges=st.integers(1, 4),
)


@given(specs, st.integers(1, 12))
def test_the_slices_of_a_step_divide_its_positions(spec, workers):
    for step in range(spec.steps_per_epoch):
        slices = [share(spec, step, rank, workers) for rank in range(workers)]
        joined = [position for part in slices for position in part]
        assert joined == list(range(joined[0], joined[0] + len(joined)))
        sizes = [len(part) for part in slices]
        assert max(sizes) - min(sizes) <= 1
        assert sizes == sorted(sizes, reverse=True)


@pytest.mark.slow
@given(specs, st.data())
def test_an_epoch_uses_every_sample_once_whatever_the_workers_of_each_step(spec, data):
    used = np.zeros(spec.samples, dtype=int)
    order = permutation(3, 5, spec.samples)
    for step in range(spec.steps_per_epoch):
        workers = data.draw(st.integers(1, 5))
        for rank in range(workers):
            np.add.at(used, indices(order, share(spec, step, rank, workers)), 1)
    rest = spec.samples % spec.global_batch
    if spec.last == "short" or not rest:
        assert (used == 1).all()
    elif spec.last == "drop":
        assert used.sum() == spec.samples - rest
        assert used.max() == 1
    else:
        assert used.sum() == spec.samples - rest + spec.global_batch
        assert used.min() == 1


@given(specs, st.integers(0, 10_000))
def test_a_version_is_a_place(spec, version):
    where = place(spec, version)
    assert (where.epoch * spec.steps_per_epoch + where.step) * spec.exchanges + where.exchange == version
    assert 0 <= where.step < spec.steps_per_epoch
    assert 0 <= where.exchange < spec.exchanges


def test_the_order_is_fixed_by_seed_and_epoch():
    assert permutation(7, 2, 10).tolist() == [6, 7, 8, 4, 0, 1, 5, 3, 9, 2]
    assert (permutation(7, 2, 1000) == permutation(7, 2, 1000)).all()
    assert (permutation(7, 2, 1000) != permutation(7, 3, 1000)).any()
    assert (permutation(7, 2, 1000) != permutation(8, 2, 1000)).any()


def test_places_of_a_job_with_two_trainers():
    spec = DataSpec(True, 10, 4, exchanges=2)
    assert [place(spec, version) for version in (0, 1, 2, 5, 6)] == [
        Place(0, 0, 0),
        Place(0, 0, 1),
        Place(0, 1, 0),
        Place(0, 2, 1),
        Place(1, 0, 0),
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"samples": 0}, "empty"),
        ({"global_batch": 0}, "at least 1"),
        ({"last": "skip"}, "short"),
        ({"loss": "max"}, "mean"),
        ({"samples": 3, "last": "drop"}, "leave no whole step"),
    ],
)
def test_bad_values_are_refused(change, message):
    with pytest.raises(ConfigurationError, match=message):
        DataSpec(**{"elastic": True, "samples": 10, "global_batch": 4, **change})


def test_an_order_that_is_none():
    with pytest.raises(ConfigurationError, match='order must be "shuffled" or "given", not \'sorted\''):
        DataSpec(True, 10, 2, order="sorted")
