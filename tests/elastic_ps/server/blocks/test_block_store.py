"""A server's blocks and their memory: without threads or sockets."""

import numpy as np
import pytest

from elastic_ps.core.errors import ConfigurationError, ProtocolError
from elastic_ps.core.model import Model, Run, Tensor
from elastic_ps.core.optimizer import Hyper, OptimizerSpec
from elastic_ps.optimizers.gradient_sum import GradientSum
from elastic_ps.server.blocks.block_store import ServerBlockStore
from elastic_ps.server.blocks.memory_release import UnusedMemory
from elastic_ps.server.phases import BlockStatus

SGD = OptimizerSpec("sgd", {"momentum": 0.9}).to_json()


def model(*sizes: int, dtype: str = "float32", divisible: bool = True) -> Model:
    tensors = [Tensor(0, f"i:{number}", (size,), dtype, divisible=divisible) for number, size in enumerate(sizes)]
    return Model(tuple(tensors), 128)


def store_of(made: Model, optimizer: str = SGD, blocks: list[int] | None = None) -> ServerBlockStore:
    store = ServerBlockStore(Model(block_bytes=made.block_bytes))
    store.grow(made, [optimizer])
    store.allocate(range(len(made.blocks)) if blocks is None else blocks, BlockStatus.PRIMARY)
    return store


def ones(store: ServerBlockStore, segment: Run) -> GradientSum:
    return GradientSum([np.ones_like(store.value(segment))])


def test_blocks_that_arrive_together_are_one_segment() -> None:
    made = model(100, 7, 0, 32)
    store = store_of(made)
    everything = (0, len(made.blocks))
    assert list(store.segments(everything)) == [everything]
    assert len(store.value(everything)) * 4 == made.slab_bytes
    assert [len(state) for state in store.states(everything).values()] == [len(store.value(everything))]


def test_a_later_arrival_joins_its_neighbours() -> None:
    made = model(32, 32, 32)
    store = store_of(made, blocks=[0, 2])
    store.value((0, 1))[...] = 1
    store.allocate([1], BlockStatus.PRIMARY)
    assert list(store.segments((0, 3))) == [(0, 3)]
    assert store.value((0, 3)).tolist() == [1] * 32 + [0] * 64
    data = np.arange(3 * 128, dtype=np.uint8)
    store.write_values((0, 3), data)
    assert np.concatenate(store.values.pieces((0, 3))).tobytes() == data.tobytes()


def test_multipliers_cut_arithmetic_but_not_memory() -> None:
    made = model(32, 32, 32)
    spec = OptimizerSpec("sgd", {}, {"i:1": {"lr_mult": 2.0}})
    store = store_of(made, spec.to_json())
    assert list(store.segments((0, 3))) == [(0, 1), (1, 1), (2, 1)]
    assert len(store.values.pieces((0, 3))) == 1


def test_each_parameter_group_has_its_own_numbers() -> None:
    made = model(32, 32, 32)
    spec = OptimizerSpec("torch.SGD", {}, {"i:1": {"group": 1.0}})
    store = store_of(made, spec.to_json())
    hyper = Hyper(groups=({"lr": 1.0}, {"lr": 0.5, "weight_decay": 0.25}))
    for segment in store.segments((0, 3)):
        assert not store.refusal(segment[0], hyper)
        store.update_segment(segment, ones(store, segment), hyper)
    assert store.value((0, 3)).tolist() == [-1] * 32 + [-0.5] * 32 + [-1] * 32
    assert store.step(1, hyper)[1] == Hyper(lr=0.5, wd=0.25, groups=hyper.groups[1:])
    assert store.refusal(1, Hyper(groups=hyper.groups[:1])) == ("key 1: it is in parameter group 1, and the push has 1")


@pytest.mark.parametrize(
    ("name", "args", "group", "rows"),
    [
        ("torch.SGD", {}, {}, True),
        ("torch.SGD", {}, {"weight_decay": 0.1}, False),
        ("torch.SGD", {"momentum": True}, {}, False),
        ("torch.Adagrad", {}, {"weight_decay": 0.0}, True),
        ("torch.Adam", {}, {}, False),
    ],
)
def test_rows_suffice_where_the_group_has_no_weight_decay(
    name: str, args: dict[str, bool], group: dict[str, float], rows: bool
) -> None:
    store = store_of(model(32, 32), OptimizerSpec(name, args, {"i:1": {"group": 1.0}}).to_json())
    assert store.treatment(1).takes_rows(Hyper(groups=({"weight_decay": 1.0}, group))) == rows


def test_an_optimizer_that_is_set_later_gets_its_state() -> None:
    made = model(32)
    store = store_of(made, "")
    assert not store.states((0, 1))
    store.grow(made, [SGD])
    assert len(store.states((0, 1))) == 1
    store.grow(made, [OptimizerSpec("adam").to_json()])  # the first one stays
    assert len(store.states((0, 1))) == 1


def test_release_gives_memory_back_and_forgets() -> None:
    made = Model((Tensor(0, "i:0", (1 << 16,), "float32"),), 1 << 14)
    store = store_of(made)
    store.value((0, 16))[...] = 1
    unused = UnusedMemory()
    store.release(range(4, 8), unused)
    assert store.held(BlockStatus.PRIMARY).tolist() == [*range(4), *range(8, 16)]
    unused.give_back()
    assert not unused
    assert store.value((0, 4)).min() == store.value((8, 8)).min() == 1
    assert store.value((4, 4)).max() == 0


def test_blocks_that_come_at_several_versions_are_in_one_image() -> None:
    made = Model((Tensor(0, "i:0", (64,), "float32"),), 64)
    one, other = store_of(made), store_of(made)
    for block in range(4):
        data = np.concatenate([part.view(np.uint8) for part in one.image((block, 1))])
        other.load((block, 1), data, block, [block], {})
        for behind in range(block + 1):
            other.update_segment((behind, 1), ones(other, (behind, 1)), Hyper(lr=0.1))
        one.update_segment((0, 4), ones(one, (0, 4)), Hyper(lr=0.1))
    assert other.values.by_image([(0, 4)]) == [[(0, 4)]]
    other.update_segment((1, 2), ones(other, (1, 2)), Hyper(lr=0.1))
    assert sorted(other.values.by_image([(0, 2), (2, 2)])) == [[(0, 1), (3, 1)], [(1, 1), (2, 1)]]


def test_image_and_load_are_inverse() -> None:
    made = model(50, 9)
    one, other = store_of(made), store_of(made)
    hyper = Hyper(lr=0.1)
    segment = (0, len(made.blocks))
    one.update_segment(segment, ones(one, segment), hyper)
    data = np.concatenate([part.view(np.uint8) for part in one.image(segment)])
    assert data.nbytes == one.image_bytes(segment)
    other.load(segment, data, 1, [1] * len(made.blocks), {})
    for store in (one, other):
        store.update_segment(segment, ones(one, segment), hyper)
    assert [a.tobytes() for a in one.image(segment)] == [a.tobytes() for a in other.image(segment)]
    with pytest.raises(ProtocolError, match="same optimizer"):
        store_of(made, "").load(segment, data, 1, [1] * len(made.blocks), {})


def test_values_of_a_version_stay_in_place_until_the_one_after_the_next_is_made() -> None:
    made = model(50, 9)
    store = store_of(made)
    segment, hyper = (0, len(made.blocks)), Hyper(lr=0.1)
    store.write_values(segment, np.ones(made.slab_bytes // 4, dtype=np.float32).view(np.uint8))
    first = store.value(segment)
    store.update_segment(segment, ones(store, segment), hyper)
    assert first.tolist() == [1] * len(first)
    assert store.value(segment).max() < 1
    second = store.value(segment).copy()
    store.update_segment(segment, ones(store, segment), hyper)
    assert first.max() < second.min()


def test_blocks_that_were_updated_otherwise_than_their_neighbours_can_be_loaded() -> None:
    made = model(32, 32)
    store = store_of(made)
    store.update_segment((1, 1), ones(store, (1, 1)), Hyper(lr=0.1))
    assert list(store.segments((0, 2))) == [(0, 1), (1, 1)]
    assert store.has_one_treatment((0, 2))
    image = np.full(store.image_bytes((0, 1)) * 2, 7, dtype=np.uint8)
    store.load((0, 2), image, 5, [1, 1], {})
    assert b"".join(part.tobytes() for part in store.values.pieces((0, 2))) == bytes([7] * 256)


def test_what_cannot_be_optimized_says_so() -> None:
    whole = store_of(model(100), OptimizerSpec("lamb").to_json())
    assert "needs whole tensors" in whole.treatment(0).refusal
    integers = store_of(model(10, dtype="int32"))
    assert "int32" in integers.treatment(0).refusal
    with pytest.raises(ConfigurationError, match="--optimizer-module"):
        store_of(model(10), OptimizerSpec("theirs:Rule").to_json())


def test_whole_tensors_are_updated_one_by_one() -> None:
    store = store_of(model(100, 60, divisible=False), OptimizerSpec("lamb").to_json())
    assert list(store.segments((0, 2))) == [(0, 1), (1, 1)]


@pytest.mark.parametrize("run", [(-1, 1), (0, 0), (0, 99), (7, 1)])
def test_runs_outside_of_the_model_are_refused(run: tuple[int, int]) -> None:
    with pytest.raises(ProtocolError):
        store_of(model(32, 32)).span([run])
