"""What the operator asks of jobs' coordinators: one that takes long keeps no other waiting."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

from k8s.elastic_operator.coordinator_calls import CoordinatorRequests
from k8s.elastic_operator.job.actions import StopJob
from k8s.elastic_operator.job.reconciliation import CheckpointSaving

SECONDS = 5.0


async def savers_end():
    """Nobody writes a checkpoint any more, and what was written has been told."""
    async with asyncio.timeout(SECONDS):
        while any(thread.name.startswith("save-") for thread in threading.enumerate()):
            await asyncio.sleep(0.01)
    await asyncio.sleep(0)


def test_jobs_that_save_checkpoints_keep_no_other_job_waiting():
    ended, stopped = threading.Event(), []

    def write():
        assert ended.wait(SECONDS), "others had to wait for this checkpoint"
        return SimpleNamespace(url="memory://one")

    async def scene():
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))  # of a machine with few cores
        saving, other = (CoordinatorRequests(name, lambda seconds: None) for name in ("saving", "other"))
        saving.save(SimpleNamespace(checkpoint=write), term=1)
        await asyncio.sleep(0)  # it begins
        await other.ask(SimpleNamespace(stop=lambda **_: stopped.append("other")), StopJob("why"))
        assert saving.saving.under_way
        ended.set()
        async with asyncio.timeout(SECONDS):
            while saving.saving.under_way:
                await asyncio.sleep(0.01)
        assert saving.saving.url == "memory://one"
        await savers_end()  # an operator that has saved a thousand jobs keeps no thousand threads
        saving.close()

    asyncio.run(scene())
    assert stopped == ["other"]


def test_a_coordinator_that_comes_after_is_asked_for_a_checkpoint_of_its_own():
    """What the one before has written, or still writes, lacks what was trained since it was lost."""
    ended = threading.Event()

    def never():
        ended.wait(SECONDS)
        return SimpleNamespace(url="memory://old")

    async def scene():
        asking = CoordinatorRequests("one", lambda seconds: None)
        asking.save(SimpleNamespace(checkpoint=never), term=1)
        await asyncio.sleep(0)
        asking.save(SimpleNamespace(checkpoint=lambda: SimpleNamespace(url="memory://new")), term=2)
        async with asyncio.timeout(SECONDS):
            while asking.saving.under_way:
                await asyncio.sleep(0.01)
        ended.set()
        await savers_end()
        asking.save(SimpleNamespace(checkpoint=never), term=2)
        return asking.saving

    assert asyncio.run(scene()) == CheckpointSaving(2, url="memory://new")


def test_a_checkpoint_that_cannot_even_be_asked_for_is_not_waited_for():
    """Else the job would be suspending for ever, and not be tried again."""
    woken = []

    def fails():
        raise ValueError("Cannot invoke RPC on closed channel!")

    async def scene():
        asking = CoordinatorRequests("one", woken.append)
        asking.save(SimpleNamespace(checkpoint=fails), term=1)
        async with asyncio.timeout(SECONDS):
            await asyncio.gather(asking._saver, return_exceptions=True)
        return asking.saving

    saving = asyncio.run(scene())
    assert (saving.under_way, saving.error) == (False, "the operator failed: Cannot invoke RPC on closed channel!")
    assert woken == [0.0]
