"""An event loop of the world ends with it, wherever it is."""

from tests.world.kernel import loop
from tests.world.kernel.scheduler import Process, Scheduler
from tests.world.kernel.threads import Thread, here, time


def test_a_coroutine_that_is_ended_in_the_middle_ends_its_loop():
    """asyncio keeps what is raised in a task for who awaits it, and nobody may do so."""

    async def main():
        own = loop.asyncio.get_running_loop()
        own.create_task(waiting())
        await own.create_future()

    async def waiting():
        time.sleep(9.0)

    ended = []

    def body():
        try:
            loop.run(main())
        finally:
            ended.append(True)

    scheduler = here.scheduler = Scheduler(7)
    Thread(target=body).begin(Process("p", "test", 1))
    scheduler.call_at(5.0, lambda: setattr(scheduler, "stopped", True))
    scheduler.run()
    scheduler.end()
    here.scheduler = None
    assert ended
