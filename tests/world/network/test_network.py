"""The world's network says until when a fault of a way lasts."""

from random import Random

from tests.world.kernel.scheduler import Process, Scheduler
from tests.world.network.network import RESET, Network


def test_a_way_that_is_free_again_is_troubled_until_what_was_kept_has_arrived() -> None:
    scheduler, one, other = Scheduler(1), Process("s0", "server", 1), Process("s1", "server", 2)
    network, made, came = Network(scheduler, Random(3), (0.001, 0.002)), [], []

    def accepted(end) -> None:
        end.took = came.append

    network.listen(other, 7, accepted)
    scheduler.spawn(one, lambda: made.append(network.connect(one, 7, 1.0)))
    scheduler.run()
    network.block(one, other)
    made[0].send("lost for now")
    assert network.troubled({one, other})
    network.heal(one, other)
    assert network.troubled({one, other})
    assert not network.troubled({one})
    scheduler.call_at(1.6, lambda: setattr(scheduler, "stopped", True))
    scheduler.run()
    assert came == ["lost for now"]
    assert not network.troubled({one, other})


def test_who_has_closed_a_connection_while_there_was_no_way_tells_it_when_there_is_one_again() -> None:
    scheduler, one, other = Scheduler(1), Process("s0", "server", 1), Process("s1", "server", 2)
    network, made, broke = Network(scheduler, Random(3), (0.001, 0.002), retransmits=True), [], []
    network.listen(other, 7, lambda end: setattr(end, "broke", broke.append))
    scheduler.spawn(one, lambda: made.append(network.connect(one, 7, 1.0)))
    scheduler.run()
    network.block(one, other)
    made[0].close()
    network.heal(one, other)
    assert not broke
    scheduler.call_at(1.6, lambda: setattr(scheduler, "stopped", True))
    scheduler.run()
    assert broke == [RESET]
