"""What workers have in a server's memory of blocks that a death gives to another one: gradients, and values."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from elastic_ps.core.configuration import Member, Role
from elastic_ps.server.migration.promotion import promote
from elastic_ps.server.phases import BlockStatus
from elastic_ps.transport.shared_memory import Image
from tests.elastic_ps.server.server_desk import DATA, Desk

OTHER = Member("s1", Role.SERVER, "h", 2)
BLOCK = 1
SYNC = replace(DATA, consistency="sync")


def promoted_elsewhere(desk: Desk, follows: bool) -> Image:
    """Promote another server's copy of a block whose gradients lie here, of a step that is under way."""
    state, count = desk.state, len(desk.model.blocks)
    image = Image(desk.model.slab_bytes)
    image.array[...] = 1
    state.gradients.add(image)
    current = state.standing.current
    assert current is not None
    owners = tuple(int(block == BLOCK) for block in range(count))
    followers = tuple(0 if follows and block == BLOCK else -1 for block in range(count))
    servers = (*current.servers, OTHER)
    state.standing = replace(
        state.standing, current=replace(current, servers=servers, assignment=owners, followers=followers)
    )
    with state.changed:
        promote(state, SimpleNamespace(take_back=lambda blocks: None), [BLOCK])  # type: ignore[arg-type]
        state.unused.give_back()
    return image


def handed_over(desk: Desk) -> tuple[Image, ...]:
    """Have handed a block over to a server that is dead by now; return the images of the values."""
    images = desk.state.store.values.images
    for image in images:
        image.array[...] = 1
    desk.state.store.status[BLOCK] = BlockStatus.FROZEN
    return images


def cleared(desk: Desk, image: Image) -> list[bool]:
    """Whether each block's gradients are gone."""
    spans = (image.array[desk.model.span((block, 1))] for block in range(len(desk.model.blocks)))
    return [not np.any(span) for span in spans]


def give_back(desk: Desk) -> None:
    with desk.state.changed:
        desk.state.give_back_past()
        desk.state.unused.give_back()


@pytest.mark.parametrize("follows", [False, True])
def test_gradients_stay_until_the_step_is_over(follows: bool) -> None:
    desk = Desk(data=SYNC)
    image = promoted_elsewhere(desk, follows)
    assert desk.state.store.status[BLOCK] == (BlockStatus.FOLLOWER if follows else BlockStatus.ABSENT)
    assert not any(cleared(desk, image))  # workers push them to the new owner, from here
    give_back(desk)
    assert not any(cleared(desk, image))  # the death is committed, and they may not have pushed yet
    desk.state.store.versions += 2
    give_back(desk)
    assert cleared(desk, image) == [block == BLOCK for block in range(len(desk.model.blocks))]


def test_gradients_of_a_block_that_has_come_back_are_its_own() -> None:
    desk = Desk(data=SYNC)
    before = desk.state.standing
    image = promoted_elsewhere(desk, follows=True)
    desk.state.standing = before
    desk.state.store.versions += 2
    give_back(desk)
    assert not any(cleared(desk, image))


def test_gradients_stay_also_where_the_next_plan_takes_the_copy_away() -> None:
    desk = Desk(data=SYNC)
    image = promoted_elsewhere(desk, follows=True)
    with desk.state.changed:
        desk.state.release([BLOCK])
        desk.state.unused.give_back()
    assert not any(cleared(desk, image))


def test_values_stay_until_no_worker_makes_the_step_from_them_again() -> None:
    desk = Desk(data=SYNC)
    images = handed_over(desk)
    promoted_elsewhere(desk, follows=False)
    assert desk.state.store.status[BLOCK] == BlockStatus.ABSENT
    give_back(desk)
    assert not any(any(cleared(desk, image)) for image in images)
    desk.state.store.versions += 2
    with desk.state.changed:
        desk.state.stepped(2)
        desk.state.unused.give_back()
    assert all(cleared(desk, image) == [block == BLOCK for block in range(len(desk.model.blocks))] for image in images)
    assert desk.state.store.values.mark.array.view(np.int64)[0] == 2  # who reads them nevertheless can see it


def test_values_stay_where_the_block_comes_back_as_a_copy() -> None:
    desk = Desk(data=SYNC)
    images = handed_over(desk)
    desk.state.store.status[BLOCK] = BlockStatus.PRIMARY
    promoted_elsewhere(desk, follows=True)
    assert desk.state.store.status[BLOCK] == BlockStatus.FOLLOWER
    desk.state.store.versions += 2
    give_back(desk)
    assert not any(any(cleared(desk, image)) for image in images)


def test_values_stay_also_where_the_next_plan_takes_the_copy_of_them_away() -> None:
    desk = Desk(data=SYNC)
    images = handed_over(desk)
    desk.state.store.status[BLOCK] = BlockStatus.PRIMARY
    promoted_elsewhere(desk, follows=True)
    with desk.state.changed:
        desk.state.release([BLOCK])
        desk.state.unused.give_back()
    assert not any(any(cleared(desk, image)) for image in images)


def test_values_of_an_async_job_go_at_once() -> None:
    desk = Desk(data=replace(DATA, consistency="async"))
    images = handed_over(desk)
    promoted_elsewhere(desk, follows=False)
    assert all(cleared(desk, image)[BLOCK] for image in images)  # workers have copies
