"""Whom a node waits for too long, and whom it cannot reach: virtual time, played connections."""

from collections.abc import Sequence

from elastic_ps.node.peer_watch import Awaited, PeerView, PeerWatch, patience

PATIENCE, TICK = 5.0, 0.5


class Played:
    """A connection to `peer`, who answers probes as long as it is `alive`."""

    def __init__(self, peer: str):
        self.peer = peer
        self.alive = True
        self.probes = 0
        self.received = 0
        self.sent = 0
        self.backlog = 0
        self.behind = False  # what is to be sent before a probe has not been taken yet

    @property
    def signs(self) -> tuple[int, int, bool]:
        return self.received, self.sent, self.behind

    def probe(self) -> None:
        self.probes += 1
        self.received += self.alive


class Watch:
    """A node that looks every `TICK`."""

    def __init__(self) -> None:
        self.waits = PeerWatch(PATIENCE)
        self.now = 100.0
        self.links: list[Played] = []
        self.awaited: list[Awaited] = []
        self.apart: dict[str, str] = {}

    def look(self) -> bool:
        return self.waits.look(self.now, PeerView(self.links, self.awaited, self.apart))

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / TICK)):
            self.now += TICK
            assert self.look()

    def told(self) -> Sequence[tuple[str, str, float, bool]]:
        named = self.waits.named
        return [(wait.peer, wait.what, self.now - wait.since, wait.unreachable) for wait in named]


def test_patience_is_half_a_lease_and_at_least_a_second():
    assert patience(10.0) == 5.0
    assert patience(0.5) == 1.0


def test_who_answers_probes_is_never_named():
    watch = Watch()
    watch.links = [Played("s0")]
    watch.run(60)
    assert not watch.waits.named
    assert 20 < watch.links[0].probes <= 60


def test_where_something_comes_all_the_time_nobody_is_probed():
    watch = Watch()
    watch.links = [Played("s0")]
    for _ in range(40):
        watch.links[0].received += 1000
        watch.run(TICK)
    assert not watch.links[0].probes


def test_who_does_not_answer_is_unreachable_within_the_patience_and_a_few_looks():
    watch = Watch()
    frozen, other = watch.links = [Played("w1"), Played("w2")]
    watch.run(10)
    frozen.alive = False
    watch.run(PATIENCE)
    assert not watch.waits.named
    watch.run(4 * TICK)
    ((peer, what, seconds, unreachable),) = watch.told()
    assert (peer, what, unreachable) == ("w1", "a sign of life", True)
    assert PATIENCE < seconds <= PATIENCE + 3 * TICK
    asked = frozen.probes
    watch.run(20)
    assert frozen.probes == asked, "one probe is enough"
    assert other.probes > asked
    frozen.received += 1
    watch.run(TICK)
    assert not watch.waits.named, "mended: not named any more"


def test_a_probe_behind_much_that_is_being_sent_says_nothing_until_it_has_gone():
    watch = Watch()
    slow = Played("s0")
    slow.alive, slow.behind = False, True
    watch.links = [slow]
    for _ in range(60):
        slow.sent += 100_000
        watch.run(TICK)
    assert not watch.waits.named
    slow.behind = False
    watch.run(PATIENCE)
    assert not watch.waits.named
    watch.run(2 * TICK)
    assert watch.waits.unreachable == {"s0"}


def test_a_connection_that_takes_nothing_more_is_silent():
    watch = Watch()
    stuck = Played("s0")
    stuck.alive, stuck.behind = False, True
    watch.links = [stuck]
    watch.run(PATIENCE + 3 * TICK)
    assert watch.waits.unreachable == {"s0"}


def test_what_an_answering_peer_owes_for_too_long_is_waited_for():
    watch = Watch()
    watch.links = [Played("s0")]
    watch.awaited = [Awaited("s0", "the values of version 12")]
    watch.run(PATIENCE)
    assert not watch.waits.named
    watch.run(2 * TICK)
    assert watch.told() == [("s0", "the values of version 12", PATIENCE + TICK, False)]
    watch.awaited = [Awaited("s0", "the values of version 13")]
    watch.run(TICK)
    assert not watch.waits.named


def test_what_makes_progress_is_not_waited_for():
    watch = Watch()
    for done in range(60):
        watch.awaited = [Awaited("s1", "to take its blocks", done)]
        watch.run(TICK)
    assert not watch.waits.named


def test_who_takes_nothing_of_what_is_sent_is_waited_for():
    watch = Watch()
    slow = Played("w2")
    watch.links, slow.backlog = [slow], 1 << 30
    for _ in range(60):
        slow.sent += 1
        watch.run(TICK)
    assert not watch.waits.named
    watch.run(PATIENCE + TICK)
    assert watch.told() == [("w2", "to take what is being sent to it", PATIENCE + TICK, False)]


def test_a_peer_that_cannot_be_connected_to_is_unreachable_after_a_second():
    watch = Watch()
    watch.apart = {"s1": "connection refused", "s2": ""}
    watch.run(1.5)
    assert not watch.waits.named
    watch.run(TICK)
    assert watch.told() == [("s1", "a connection: connection refused", 1.5, True)]
    watch.run(PATIENCE)
    assert watch.waits.unreachable == {"s1", "s2"}, "nor has the second answered at all"
    watch.apart = {}
    watch.run(TICK)
    assert not watch.waits.named


def test_of_what_is_wrong_with_a_peer_that_it_is_cut_off_is_told():
    watch = Watch()
    watch.awaited = [Awaited("s1", "the values of version 3"), Awaited("s1", "the values of version 4")]
    watch.run(PATIENCE + 2 * TICK)
    watch.awaited.append(Awaited("s1", "the hand-over"))
    watch.apart = {"s1": "reset"}
    watch.run(2 * TICK)
    assert [what for _, what, _, _ in watch.told()] == ["the values of version 4"]
    watch.run(1.5)
    assert watch.told() == [("s1", "a connection: reset", 2.0, True)]


def test_who_was_away_itself_accuses_nobody_of_the_time():
    """SIGSTOP, or a suspended machine: the clock has gone on, this process has not."""
    watch = Watch()
    frozen = Played("s0")
    watch.links, watch.awaited = [frozen], [Awaited("s0", "the values of version 7")]
    watch.apart = {"s1": "reset"}
    watch.run(1.5)
    frozen.alive = False
    watch.now += 60
    assert not watch.look()
    assert not watch.waits.named
    watch.run(1.0)
    assert not watch.waits.named
    watch.run(PATIENCE + 3 * TICK)
    assert watch.waits.unreachable == {"s0", "s1"}, "but of what is so afterwards"
