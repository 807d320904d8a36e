"""A storage that does not answer, or a server that cannot read it now: asked again, within bounds, with their names."""

import json
from dataclasses import replace

import pytest

from coordinator.core import effects as ef
from coordinator.core import events as ev
from coordinator.core import node_answers as na
from coordinator.core.checkpoints.saving import SAVE_SECONDS
from coordinator.core.checkpoints.search_requests import ANSWER_SECONDS, PATIENCE_SECONDS, UNREAD
from coordinator.core.job import JobPhase
from coordinator.core.plans.plan import Phase
from coordinator.server.status_view import status
from elastic_ps.core.configuration import Role
from elastic_ps.core.model import Tensor
from tests.coordinator.core.checkpoints.lost_servers import without_a_server
from tests.coordinator.played_job import DATA, IDENTITY, World

BUSY = "file:///ck cannot be used: 503 Slow Down"


def looking(kept=1):
    """A job that looks for its checkpoints; their manifests, oldest first."""
    world, manifests = without_a_server(kept, "file:///ck")
    assert len(searches(world)) == 1
    return world, manifests


def searches(world):
    return [effect for effect in world.effects if isinstance(effect, ef.FindCheckpoint)]


def busy(world):
    world.post(ev.CheckpointFound(world.now, error=BUSY, again=True))


def found(world, manifest):
    world.post(ev.CheckpointFound(world.now, manifest.url, manifest.manifest))


def test_a_listing_that_fails_is_done_again_and_the_status_names_the_storage():
    world, (saved,) = looking()
    busy(world)
    assert world.state.job.phase is JobPhase.RESTORING
    assert BUSY in status(world.state, world.now).reason
    assert any(BUSY in line and "asked again in 1 s" in line for line in world.logs)
    world.tick(0.5)
    assert len(searches(world)) == 1
    world.tick(0.5)
    assert len(searches(world)) == 2
    found(world, saved)
    assert BUSY not in status(world.state, world.now).reason
    world.settle()
    assert world.counts == (2, 2)
    assert world.sent(ef.Prepare)[-1].restore == saved.url


def test_a_storage_that_never_answers_rightly_ends_the_job_in_time_with_its_words():
    world, _ = looking()
    begun, answered = world.now, 0
    while not world.state.job.ended:
        if len(searches(world)) > answered:
            answered += 1
            busy(world)
        world.tick(0.5)
        assert world.now < begun + PATIENCE_SECONDS + ANSWER_SECONDS, "without end"
    assert world.now >= begun + PATIENCE_SECONDS
    assert BUSY in world.state.job.reason
    assert "server s1 died" in world.state.job.reason
    assert 15 < answered < 60
    assert [find.patient for find in searches(world)[:2]] == [True, True]
    assert not searches(world)[-1].patient, "at last what can be read is taken"


def test_a_storage_that_hangs_is_asked_again_beside_and_named():
    world, (saved,) = looking()
    world.silence(seconds=ANSWER_SECONDS)
    assert len(searches(world)) == 2
    assert "file:///ck did not answer within 60 s" in status(world.state, world.now).reason
    found(world, saved)
    found(world, saved)
    world.settle()
    assert world.counts == (2, 2), "the first one's answer, which comes late, changes nothing"
    world, _ = looking()
    for _ in range(10):
        world.silence(seconds=ANSWER_SECONDS)
    assert world.state.job.phase is JobPhase.FAILED
    assert "did not answer" in world.state.job.reason


def test_a_coordinator_that_did_not_run_gives_its_storage_as_long_as_before():
    """The answer comes when it runs again; it failed the job before it heard that."""
    world, (saved,) = looking()
    world.tick()
    world.tick(PATIENCE_SECONDS + 1)
    assert world.state.job.loading
    found(world, saved)
    world.settle()
    assert world.counts == (2, 2)


def test_a_coordinator_that_comes_back_goes_on_looking():
    world, (saved,) = looking()
    busy(world)
    world.kill_coordinator()
    assert len(searches(world)) == 2
    found(world, saved)
    world.settle()
    assert world.counts == (2, 2)


def unread(world):
    """A server of the start says that it cannot read the checkpoint now; the search that follows."""
    world.until(Phase.ASSIGNED)
    server = next(node.id for node in world.alive if node.role is Role.SERVER)
    before = len(searches(world))
    world.post(na.CheckpointUnreadable(world.now, server, world.plan.number, "it cannot be read: 503", damaged=False))
    assert len(searches(world)) == before + 1
    return searches(world)[-1].search


def test_what_one_server_could_not_read_is_not_damaged():
    world, (_older, newest) = looking(2)
    found(world, newest)
    search = unread(world)
    assert (search.passed, world.state.job.damaged) == (frozenset(), frozenset())
    found(world, newest)
    world.settle()
    assert world.sent(ef.Prepare)[-1].restore == newest.url
    assert world.counts == (2, 2)
    for _ in range(3):
        world.turn()
    assert not world.state.job.unread, "what is over does not count the next time"


def test_what_cannot_be_read_again_and_again_gives_way_to_an_older_one_but_not_for_good():
    world, (older, newest) = looking(2)
    for times in range(UNREAD):
        found(world, newest)
        search = unread(world)
        assert search.passed == (frozenset({newest.url}) if times == UNREAD - 1 else frozenset())
    found(world, older)
    world.settle()
    for _ in range(3):
        world.turn()
    assert not world.state.job.damaged
    world.kill(world.node(next(iter(world.state.job.configuration.servers)).id))
    world.launcher()
    assert searches(world)[-1].search.passed == frozenset()


@pytest.mark.parametrize("finds", [True, False])
def test_a_search_for_an_earlier_restore_that_comes_back_late_tells_nothing(finds):
    """The storage let it hang, answered another, and has a newer checkpoint by now."""
    world, (older,) = looking()
    for _ in range(int(2 * ANSWER_SECONDS)):
        world.tick()
    late, second = (effect.search for effect in searches(world))
    world.post(ev.CheckpointFound(world.now, older.url, older.manifest, search=second))
    world.settle()
    world.ask(ev.CheckpointAsked)
    newer = world.saved()
    world.kill(next(node for node in world.alive if node.role is Role.SERVER))
    world.launcher()
    third = searches(world)[-1].search
    named = {"url": older.url, "manifest": older.manifest} if finds else {"error": "no checkpoint of this job"}
    world.post(ev.CheckpointFound(world.now, search=late, **named))
    assert world.state.job.loading, "it goes on looking"
    assert searches(world)[-1].search == third, "for what it may load now"
    world.post(ev.CheckpointFound(world.now, newer.url, newer.manifest, search=third))
    world.settle()
    assert world.sent(ef.Prepare)[-1].restore == newer.url


# ---- whose -----------------------------------------------------------------------------------------------------------


def test_a_job_looks_for_its_own_and_for_what_it_began_from():
    """B runs in the folder of an older job and dies before it has saved itself: it must not come back as that one."""
    world = World(2, 2, checkpoint="file:///ck")
    world.kill(world.node("s0"))
    world.launcher()
    (find,) = searches(world)
    assert (find.search.identity, find.search.known, find.search.restore) == (IDENTITY, (), "")


def test_a_job_keeps_its_identity_over_restores_restarts_and_the_loss_of_its_journal():
    world, (saved,) = looking()
    assert saved.url == f"file:///ck/version-{saved.manifest.version:010d}-{IDENTITY}"
    assert saved.manifest.identity == IDENTITY
    other = replace(saved.manifest, identity="another job's")
    world.post(ev.CheckpointFound(world.now, saved.url, other))
    world.settle()
    world.journal.write(ef.WriteJournal(replace(world.state.job, begun="file:///named", since=5.0)))
    world.kill_coordinator()
    assert world.state.job.identity == IDENTITY
    world.settle()
    world.lose_journal()
    assert world.state.job.identity != IDENTITY, "it is started without one"
    world.settle()
    assert world.state.job.identity == IDENTITY, "which its nodes know"
    assert (world.state.job.begun, world.state.job.since) == ("file:///named", 5.0), "likewise"
    assert world.counts == (2, 2)


# ---- saves that fail -------------------------------------------------------------------------------------------------


def saving(world):
    """A checkpoint whose servers have been told to save."""
    world.turn()
    world.ask(ev.CheckpointAsked)
    assert world.state.saving.clock is not None
    return world.state.saving


@pytest.mark.parametrize("fault", ["a server's", "the manifest's"])
def test_a_save_that_fails_is_told_and_cleared_away_and_the_job_goes_on(fault):
    world = World(1, 1, checkpoint="file:///ck")
    pending = saving(world)
    if fault == "a server's":
        world.post(na.Saved(world.now, "s0", pending.clock, '{"error": "s0 cannot write: No space left on device"}'))
    else:
        while not world.state.saving.writing:
            world.turn()
        world.post(ev.ManifestWritten(world.now, pending.url, error="No space left on device"))
    told = world.replies[world.asked].text
    assert "No space left on device" in told
    assert "{" not in told, "a sentence"
    assert ef.DiscardCheckpoint(pending.url) in world.effects
    assert (world.state.saving, world.state.job.checkpoints) == (None, ())
    before = world.state.version
    for _ in range(3):
        world.turn()
    assert world.state.version > before


@pytest.mark.parametrize(
    "detail",
    [
        *("", "[]", '"error"', '{"blocks": []}', "[" * 100_000),
        *('{"blocks": {"x": {}}}', '{"blocks": {"0": 1}}', '{"blocks": {"0": {"version": "1"}}}'),
        *('{"blocks": {"99": {}}}', '{"blocks": {}, "applied": []}', '{"blocks": {}, "applied": {"w0": [[0, 1]]}}'),
    ],
    ids=lambda detail: detail[:50],
)
def test_an_answer_that_is_none_fails_the_checkpoint_with_the_nodes_name(detail):
    world = World(1, 1, checkpoint="file:///ck")
    world.post(na.Saved(world.now, "s0", saving(world).clock, detail))
    assert "s0 could not save its blocks" in world.replies[world.asked].text


def test_who_holds_no_blocks_says_nothing_of_where_they_are():
    world = World(1, 1, checkpoint="file:///ck")
    pending = saving(world)
    blocks = {str(block): {"file": "w0.bin"} for block in range(len(world.state.job.model.blocks))}
    world.post(na.Saved(world.now, "w0", pending.clock, json.dumps({"blocks": blocks})))
    assert not world.state.saving.saved


def test_an_answer_to_an_order_for_another_folder_is_none_to_this_one():
    world = World(1, 1, checkpoint="file:///ck")
    pending = saving(world)
    blocks = {str(block): {"file": "s0.bin"} for block in range(len(world.state.job.model.blocks))}
    world.post(na.Saved(world.now, "s0", pending.clock, json.dumps({"url": "file:///other/1", "blocks": blocks})))
    assert not world.state.saving.writing
    world.post(na.Saved(world.now, "s0", pending.clock, json.dumps({"url": pending.url, "blocks": blocks})))
    assert world.state.saving.writing


def test_an_answer_to_the_order_before_new_tensors_is_none_to_the_order_after_them():
    """What a server has saved is asked for by its folder again, and answered as it was."""
    world = World(2, 1, checkpoint="file:///ck")
    first = saving(world)
    new = Tensor(0, "i:new", (16,), "float32")
    world.declare(world.node("w0"), (new,), DATA)
    world.post(na.Extended(world.now, "s0", world.state.job.growth))
    second = world.state.saving
    assert second.clock is not None, "nobody has told a newer version since"
    assert second.url != first.url


@pytest.mark.parametrize("between", ["another fails", "more tensors"])
def test_no_folder_is_ordered_a_second_time(between):
    """What lay in the folder of one that failed is cleared away, but its servers repeat that they have saved."""
    world = World(2, 1, checkpoint="file:///ck")
    urls = [saving(world).url]
    for number in range(3):
        pending = world.state.saving
        if between == "another fails":
            world.post(na.Saved(world.now, "s0", pending.clock, '{"error": "No space left on device"}'))
            world.ask(ev.CheckpointAsked)
        else:
            world.declare(world.node("w0"), (Tensor(0, f"i:new{number}", (16,), "float32"),), DATA)
            world.post(na.Extended(world.now, "s0", world.state.job.growth))
        assert world.state.saving.clock is not None, "nobody has told a newer version since"
        urls.append(world.state.saving.url)
    assert sorted(set(urls)) == urls


def test_a_restored_job_saves_at_versions_that_it_saved_before():
    world = World(1, 1, checkpoint="file:///ck")
    saving(world)
    first = world.saved()
    while world.state.version < first.manifest.version + 40:
        world.turn()
    lost = saving(world)
    world.kill(world.node("s0"))
    world.turn()
    world.post(ev.CheckpointFound(world.now, first.url, first.manifest))
    world.settle()
    assert first.manifest.version < saving(world).clock < lost.clock


def test_an_order_that_comes_too_late_is_given_anew_also_while_a_plan_waits_for_its_end():
    """A server is in the plan's configuration by then, and answers with its number, as to an order to switch."""
    world = World(2, 1, checkpoint="file:///ck")
    world.ask(ev.ScaleAsked, 3, 1)
    number = world.until(Phase.ARMED).number
    for node in world.alive:
        node.switch()
        while node.outbox:
            world.speak(node)
    world.ask(ev.CheckpointAsked)
    first = world.state.saving.clock
    assert world.plan is not None, "it waits for a step"
    world.post(na.Late(world.now, "s0", number, first + 1))
    assert world.state.saving.clock > first + 1


def test_a_save_that_takes_too_long_is_given_up_with_the_name_of_who_holds_it_up():
    world = World(1, 2, checkpoint="file:///ck")
    pending = saving(world)
    table = '{"blocks": {}}'
    world.post(na.Saved(world.now, "s0", pending.clock, table))
    for _ in range(int(SAVE_SECONDS / 5)):
        for node in world.alive:
            world.report(node)
        world.tick(5.0)
    assert world.state.saving is None
    assert "is given up: s1 did not write it within 1800 s" in world.replies[world.asked].text
