"""Memory of new owners is touched in advance: what they gain, once they have made it, while the plan stands."""

import os
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from elastic_ps.core.configuration import ConfigId, Configuration, Member, Role
from elastic_ps.core.model import Model, Tensor
from elastic_ps.node.standing import Standing
from elastic_ps.transport.shared_memory import Image
from elastic_ps.worker.wire import prefault as module
from elastic_ps.worker.wire.prefault import populate

BLOCK = 2 << 20
MODEL = Model((Tensor(0, "i:0", (BLOCK,), "float32"),), BLOCK)  # four blocks
SERVERS = tuple(Member(name, Role.SERVER, "here") for name in ("s0", "s1"))
WORKER = Member("w0", Role.WORKER, "here")
OLD = Configuration(ConfigId(1, 1), (WORKER,), SERVERS[:1], (0, 0, 0, 0))
NEW = Configuration(ConfigId(1, 2), (WORKER,), SERVERS, (0, 1, 0, 1))


def state(images: dict[str, list[Image]], standing: Standing, is_shadow: bool = False) -> Any:
    return SimpleNamespace(
        is_shadow=is_shadow,
        changed=threading.Condition(),
        inbox=SimpleNamespace(model=MODEL),
        peers=SimpleNamespace(shared=lambda server: images[server]),
        standing=standing,
        ended=None,
    )


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAUSE", 0.0)


def prepared() -> Standing:
    return Standing("w0", current=OLD).prepare(NEW, paused=False, dead=frozenset())


def touched(image: Image) -> int:
    return os.fstat(image.descriptor).st_blocks * 512


def test_what_new_owners_gain_is_touched_and_nothing_else() -> None:
    images = {server: [Image(MODEL.slab_bytes) for _ in range(3)] for server in ("s0", "s1")}
    populate(state(images, prepared()), NEW)
    assert [touched(image) for image in images["s0"]] == [0, 0, 0]
    assert [touched(image) for image in images["s1"]] == [2 * BLOCK] * 3


def test_who_joins_touches_what_it_will_exchange_with_all() -> None:
    """It follows the present configuration, whose owners it has exchanged nothing with yet."""
    images = {server: [Image(MODEL.slab_bytes) for _ in range(3)] for server in ("s0", "s1")}
    populate(state(images, prepared(), is_shadow=True), NEW)
    assert [touched(image) for image in images["s0"] + images["s1"]] == [2 * BLOCK] * 6


def test_a_new_owner_that_grows_into_its_model_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Image(0)
    seen = Image.attached(os.dup(made.descriptor), writable=True)
    monkeypatch.setattr(
        module, "time", SimpleNamespace(sleep=lambda _: made.grow(MODEL.slab_bytes), perf_counter=float)
    )
    populate(state({"s0": [], "s1": [seen]}, prepared()), NEW)
    assert touched(made) == 2 * BLOCK


def test_a_plan_that_is_cancelled_touches_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    image = Image(0)
    played = state({"s0": [], "s1": [image]}, prepared())

    def cancel(_seconds: float) -> None:
        played.standing = replace(played.standing, prepared=None)

    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=cancel, perf_counter=float))
    populate(played, NEW)
    assert played.standing.prepared is None
    assert touched(image) == 0
