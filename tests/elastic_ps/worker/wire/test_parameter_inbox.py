import numpy as np
import pytest

from elastic_ps.core.model import Model, Tensor
from elastic_ps.core.sparse_rows import Rows
from elastic_ps.worker.wire.parameter_inbox import ParameterInbox


@pytest.fixture
def inbox():
    tensors = (Tensor(0, "i:0", (4,), "float32"), Tensor(0, "i:1", (2, 3), "float64"), Tensor(0, "i:2", (), "float32"))
    return ParameterInbox(Model(tensors))


def receive(inbox, version, block, value):
    assert inbox.wants(version, [(block, 1)])
    (buffer,) = inbox.buffers(version, [(block, 1)])
    buffer.view(inbox.model.tensors[inbox.model.blocks[block].tensor].dtype)[:] = value
    inbox.arrived(version, [(block, 1)])


def test_a_member_installs_a_version_when_its_last_block_has_come(inbox):
    inbox.begin(4)
    receive(inbox, 5, 2, 1.5)
    receive(inbox, 5, 0, 2.5)
    assert inbox.next_version() is None
    assert inbox.missing(5) == [(1, 1)]
    receive(inbox, 5, 1, 3.5)
    assert inbox.next_version() == 5
    inbox.install(5)
    assert inbox.tensor(1).tolist() == [[3.5] * 3] * 2
    assert inbox.tensor(2).shape == ()
    assert inbox.tensor(2) == np.float32(1.5)


def test_a_next_version_is_torn_when_what_it_lacks_has_come_later_and_the_rest_has_not(inbox):
    inbox.begin(4)
    for block in range(3):
        receive(inbox, 5, block, 5)
    inbox.install(5)
    receive(inbox, 7, 0, 7)
    assert not inbox.is_torn()
    receive(inbox, 6, 1, 6)
    assert not inbox.is_torn(), "the last block may come in either version"
    receive(inbox, 6, 2, 6)
    assert inbox.is_torn()
    receive(inbox, 7, 1, 7)
    receive(inbox, 7, 2, 7)
    assert (inbox.is_torn(), inbox.next_after()) == (False, 7), "it goes on with the one after"


def test_who_goes_on_waits_for_the_blocks_that_it_has_be_it_a_part_of_a_tensor():
    """Who gave a new tensor's first values may have died when one server had them: nobody may ever give the rest."""
    halves = ParameterInbox(Model((Tensor(0, "i:0", (64,), "float32"),), block_bytes=128))
    halves.begin(4)
    receive(halves, 4, 0, 1.0)
    assert (halves.missing(5), halves.behind(5), halves.next_after()) == ([(0, 2)], [(0, 1)], None)
    receive(halves, 5, 0, 2.0)
    assert (halves.missing(5), halves.behind(5), halves.next_after()) == ([(1, 1)], [], 5)


def test_old_and_repeated_blocks_are_not_wanted(inbox):
    inbox.begin(4)
    receive(inbox, 5, 0, 1.0)
    assert not inbox.wants(5, [(0, 1)])
    assert not inbox.wants(3, [(0, 1)])
    assert inbox.wants(5, [(0, 2)])


def test_what_was_coming_from_another_server_is_not_written_to_what_is_installed(inbox):
    inbox.begin(4)
    receive(inbox, 5, 1, 1.0)
    (late,) = inbox.buffers(5, [(0, 1)])
    receive(inbox, 6, 0, 6.0)
    inbox.forget_coming()
    assert (inbox.missing(5), inbox.missing(6)) == ([(0, 3)], [(1, 2)]), "nothing of the other version is lost"
    for block in range(3):
        receive(inbox, 5, block, 2.0)
    inbox.install(5)
    late[:] = 255
    assert inbox.tensor(0).tolist() == [2.0] * 4


def test_a_shadow_starts_at_the_first_version_that_all_blocks_can_have(inbox):
    for block, version in ((0, 7), (1, 8), (2, 7)):
        receive(inbox, version, block, version)
    assert inbox.next_version() is None
    receive(inbox, 8, 0, 8)
    receive(inbox, 9, 0, 9)  # overtakes: another server is ahead
    assert inbox.next_version() is None
    receive(inbox, 8, 2, 8)
    assert inbox.next_version() == 8
    inbox.install(8)
    assert [float(inbox.tensor(index).max()) for index in range(3)] == [8, 8, 8]
    assert inbox.missing(9) == [(1, 2)]
    for block in (1, 2):
        receive(inbox, 9, block, 9)
    assert inbox.next_version() == 9


def test_what_a_slow_server_is_still_sending_does_not_come_into_a_later_version(inbox):
    """Another server owns the block by now, and has answered sooner."""
    inbox.begin(4)
    (late,) = inbox.buffers(5, [(0, 1)])
    for version in (5, 6):
        for block in range(3):
            receive(inbox, version, block, version)
        inbox.install(version)
    for block in range(3):
        receive(inbox, 7, block, 7)
    late.view(np.float32)[:] = 5
    inbox.arrived(5, [(0, 1)])
    inbox.install(7)
    assert inbox.tensor(0).tolist() == [7] * 4


def test_a_shadow_whose_script_is_busy_keeps_the_latest_three_whole_versions(inbox):
    """A rehearsal may last for a thousand steps of the job: their parameters would not fit into any memory."""
    found = set()
    for version in range(1, 100):
        for block in range(3):
            (buffer,) = inbox.buffers(version, [(block, 1)])
            buffer[:] = version
            inbox.arrived(version, [(block, 1)])
            found.add(buffer.ctypes.data)
    assert len(found) <= 3 * 6
    for version in (97, 98, 99):
        assert inbox.next_version() == version
        inbox.install(version)
        assert set(inbox.tensor(1).view(np.uint8).ravel()) == {version}


def test_a_shadow_keeps_few_versions_that_lack_blocks_and_those_that_a_slow_server_sends(inbox):
    """As `Subscription` of the slow one has it: it sends every 32nd."""
    held = []
    for version in range(1, 1001):
        for block in (0, 1):
            receive(inbox, version, block, version)
        if version % 32 == 8 and version > 32:  # its blocks take a quarter of the time to come
            receive(inbox, version - 8, 2, version - 8)
        held.append(len(inbox._later))
        if (whole := inbox.next_version()) is not None:
            assert whole == version - 8
            inbox.install(whole)
    assert inbox.version == 992
    assert max(held) <= 17


def test_a_shadow_comes_to_the_last_version_though_one_server_is_far_behind(inbox):
    """The versions that were dropped meanwhile do not come to be again, in the place of the last."""
    for version in range(1, 60):
        for block in (0, 1):
            receive(inbox, version, block, version)
    whole = []
    for version in range(1, 60):
        if inbox.wants(version, [(2, 1)]):
            receive(inbox, version, 2, version)
            whole.append(version)
    assert len(whole) == 16
    assert inbox.next_version() == whole[-3]
    inbox.install(59)
    assert [float(inbox.tensor(index).max()) for index in range(3)] == [59, 59, 59]


def test_a_shadow_comes_to_the_last_version_though_the_server_that_is_ahead_sent_fewer(inbox):
    """What the one behind sends makes versions that lack the other's blocks: the last one makes no room for them."""
    for version in (*range(2, 42, 2), 41):  # every second one, until the plan was armed
        for block in (0, 1):
            receive(inbox, version, block, version)
    for version in range(1, 42):
        if inbox.wants(version, [(2, 1)]):
            receive(inbox, version, 2, version)
    inbox.install(41)
    assert [float(inbox.tensor(index).max()) for index in range(3)] == [41, 41, 41]


def test_a_version_of_which_a_part_is_just_coming_is_not_dropped(inbox):
    (late,) = inbox.buffers(1, [(2, 1)])
    for version in range(1, 60):
        receive(inbox, version, 0, version)
        if version < 2:
            receive(inbox, version, 1, version)
    late.view(np.float32)[:] = 1
    inbox.arrived(1, [(2, 1)])
    assert inbox.next_version() == 1
    inbox.install(1)
    assert [float(inbox.tensor(index).max()) for index in range(3)] == [1, 1, 1]


def test_memory_of_versions_that_are_over_is_used_again(inbox):
    inbox.begin(0)
    found = set()
    for version in range(1, 9):
        for block in range(3):
            receive(inbox, version, block, version)
        inbox.install(version)
        found.add(inbox.tensor(0).ctypes.data)
    assert len(found) == 2


def test_blocks_that_come_again_when_they_are_installed_change_nothing(inbox):
    inbox.begin(4)
    elsewhere = np.zeros(inbox.model.slab_bytes, np.uint8)
    inbox.buffers(5, [(0, 1)])  # of a server that is slow
    inbox.arrived(5, [(0, 1), (1, 1), (2, 1)], image=elsewhere)
    inbox.install(5)
    inbox.arrived(5, [(0, 1)])
    assert np.shares_memory(inbox.tensor(0), elsewhere)


def test_a_dead_servers_answers_are_forgotten(inbox):
    inbox.begin(0)
    receive(inbox, 1, 0, 1)
    receive(inbox, 1, 1, 1)
    inbox.forget([(0, 1)], 1)
    assert inbox.missing(1) == [(0, 1), (2, 1)]


def test_growing_keeps_what_is_there_and_waits_for_the_new(inbox):
    inbox.begin(2)
    for block in range(3):
        receive(inbox, 2, block, 6)
    inbox.grow(inbox.model.extended([Tensor(0, "i:3", (5,), "float32")]))
    assert not inbox.holds(3)
    assert inbox.missing(2) == [(3, 1)]
    receive(inbox, 2, 3, 9)
    assert inbox.holds(3)
    assert inbox.tensor(0).tolist() == [6] * 4
    assert inbox.tensor(3).tolist() == [9] * 5


def test_a_tensor_may_lie_in_the_memory_of_several_servers():
    model = Model((Tensor(0, "i:0", (70,), "float32"), Tensor(0, "i:1", (3,), "float32")), 128)
    inbox = ParameterInbox(model)
    inbox.begin(0)
    images = [np.full(model.slab_bytes, number, dtype=np.uint8) for number in (1, 2)]
    inbox.arrived(1, [(0, 1)], image=images[0])
    inbox.arrived(1, [(1, 1)], image=images[1])
    receive(inbox, 1, 2, 0)
    assert inbox.missing(1) == [(3, 1)]
    inbox.arrived(1, [(3, 1)], image=images[0])
    inbox.install(1)
    assert [part.nbytes for part in inbox.parts(0)] == [128, 128, 24]
    assert inbox.tensor(0).tobytes() == bytes([1] * 128 + [2] * 128 + [0] * 24)
    assert np.shares_memory(inbox.tensor(1), images[0])


def test_values_in_a_servers_memory_hold_until_it_begins_the_version_after_the_next():
    model = Model((Tensor(0, "i:0", (8,), "float32"),))
    inbox, image, mark = ParameterInbox(model), np.zeros(model.slab_bytes, np.uint8), np.zeros(1, np.int64)
    inbox.begin(0)
    for version in (1, 2):
        inbox.arrived(version, [(0, 1)], image=image, mark=mark.view(np.uint8))
        inbox.install(version)
        for begun in (version, version + 1):
            mark[0] = begun
            assert not inbox.is_overwritten()
        mark[0] = version + 2
        assert inbox.is_overwritten()
    receive(inbox, 3, 0, 7)
    inbox.install(3)
    mark[0] = 99
    assert not inbox.is_overwritten(), "nothing of it lies there any more"


@pytest.mark.parametrize(("begun", "overwritten"), [(2, False), (3, True)])
def test_rows_that_change_values_which_a_server_has_written_over_make_none(begun, overwritten):
    model = Model((Tensor(0, "i:0", (8, 2), "float32"),))
    inbox, image, mark = ParameterInbox(model), np.zeros(model.slab_bytes, np.uint8), np.zeros(1, np.int64)
    inbox.begin(0)
    inbox.arrived(1, [(0, 1)], image=image, mark=mark.view(np.uint8))
    inbox.install(1)
    inbox.changed(2, (0, 1), rows_at([]))
    mark[0] = begun
    inbox.install(2)
    mark[0] = 0
    assert inbox.is_overwritten() is overwritten


def test_changed_rows_alone_make_the_next_version():
    model = Model((Tensor(0, "i:0", (48, 2), "float32"), Tensor(0, "i:1", (3,), "float32")), 128)  # three blocks, one
    inbox, rng = ParameterInbox(model), np.random.default_rng(1)
    inbox.begin(0)
    image = rng.random(model.slab_bytes // 4, dtype=np.float32).view(np.uint8)
    inbox.arrived(1, [(0, 1), (2, 2)], image=image)
    receive(inbox, 1, 1, 5)
    inbox.install(1)
    expected = inbox.tensor(0).copy()
    for version in (2, 3, 5):  # at 4 a whole block comes
        if version == 5:
            receive(inbox, 4, 1, 4)
            for block in (0, 2):
                inbox.changed(4, (block, 1), rows_at([]))
            inbox.arrived(4, [(3, 1)], image=image)
            inbox.install(4)
            expected[16:32] = 4
            assert inbox.tensor(0).tobytes() == expected.tobytes()
        numbers = sorted(rng.choice(48, 7, replace=False).tolist())
        rows = Rows(np.array(numbers), rng.random((7, 2), dtype=np.float32))
        inbox.changed(version, (0, 2), rows.between(range(32)))
        inbox.changed(version, (2, 1), rows.between(range(32, 48)))
        assert not inbox.wants(version, [(0, 3)])
        inbox.arrived(version, [(3, 1)], image=image)
        inbox.install(version)
        expected[numbers] = rows.values
        assert inbox.tensor(0).tobytes() == expected.tobytes()
    assert image.view("f4").max() <= 1  # the server's own is not written to


def test_rows_of_a_key_that_this_script_has_not_defined_are_not_wanted():
    inbox = ParameterInbox(Model((Tensor(0, "i:0", (4,), "float32"), Tensor(0, "i:1", (4, 2), "float32"))))
    inbox.begin(0)
    receive(inbox, 1, 0, 1)
    inbox.install(1)
    inbox.changed(2, (1, 1), rows_at([1]))
    assert inbox.next_after() is None
    receive(inbox, 2, 0, 2)
    assert inbox.next_after() == 2, "it does not wait for the key"
    inbox.install(2)
    assert not inbox.holds(1)
    assert inbox.missing(2) == [(1, 1)], "which it asks for when its script comes to it"
    receive(inbox, 2, 1, 2)
    inbox.changed(3, (1, 1), rows_at([1]))
    receive(inbox, 3, 0, 3)
    inbox.install(3)
    assert inbox.tensor(1).tolist() == [[2, 2], [0, 0], [2, 2], [2, 2]]


def test_rows_change_those_blocks_that_are_here():
    model = Model((Tensor(0, "i:0", (48, 2), "float32"),), 128)  # three blocks of 16 rows
    inbox = ParameterInbox(model)
    inbox.begin(1)
    for block in (0, 2):
        receive(inbox, 1, block, 1)
    inbox.changed(2, (0, 3), rows_at([0, 20, 47]))
    assert (inbox.missing(2), inbox.next_after()) == ([(1, 1)], 2)
    inbox.install(2)
    receive(inbox, 2, 1, 2)
    assert inbox.tensor(0)[:, 0].nonzero()[0].tolist() == [*range(1, 47)]


def rows_at(numbers):
    return Rows(np.array(numbers, dtype=np.int64), np.zeros((len(numbers), 2), np.float32))


def test_rows_of_a_server_that_is_dead_are_forgotten():
    inbox = ParameterInbox(Model((Tensor(0, "i:0", (8, 2), "float32"),)))
    inbox.begin(0)
    receive(inbox, 1, 0, 1)
    inbox.install(1)
    inbox.changed(2, (0, 1), rows_at([1]))
    inbox.forget([(0, 1)], 2)
    assert inbox.missing(2) == [(0, 1)]
    receive(inbox, 2, 0, 2)
    inbox.install(2)
    assert (inbox.tensor(0) == 2).all()
