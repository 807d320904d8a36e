"""A worker that joins follows a member while the job trains, and holds the same at the plan's clock."""

from contextlib import ExitStack
from unittest.mock import patch

import pytest

torch = pytest.importorskip("torch")

from coordinator.core.plans.plan import Phase, PlanKind  # noqa: E402
from elastic_ps.core.configuration import ConfigId, Configuration, Member, Role  # noqa: E402
from elastic_ps.core.data_order import place  # noqa: E402
from elastic_ps.core.errors import ProtocolError  # noqa: E402
from elastic_ps.torch.allreduce import exchange  # noqa: E402
from elastic_ps.torch.allreduce.following import shadow_feed  # noqa: E402
from elastic_ps.torch.allreduce.following.follow_stream import RECORD, SNAPSHOT  # noqa: E402
from elastic_ps.torch.allreduce.following.shadow_follower import ShadowFollower  # noqa: E402
from elastic_ps.torch.allreduce.group_state import givers  # noqa: E402
from elastic_ps.torch.allreduce.job import AllReduceJob  # noqa: E402
from elastic_ps.torch.allreduce.replica.replica import Replica  # noqa: E402
from tests.elastic_ps.torch.allreduce.group_job import CHIEF, SPEC, Killed, Worker, adam  # noqa: E402
from tests.elastic_ps.torch.allreduce.played_coordinator import Coordinator  # noqa: E402
from tests.elastic_ps.torch.allreduce.test_group_jobs import finished  # noqa: E402

whole_jobs = [pytest.mark.slow, pytest.mark.timeout(900)]

EPOCHS = 9


class OwnAdam(torch.optim.AdamW):
    """An optimizer that is none of torch.optim."""


class GrowingJob:
    """A job that another worker joins as soon as the first one has begun a step.

    Attributes:
        workers: all, whatever became of them.
        given: by whom the agreement at a plan's switch had all taken over, by configuration.
        followed: what the shadows have applied: worker, kind, parameters, version.
        dead: who has died.
    """

    def __init__(self, members, make=adam, at=lambda worker, where: None, portion_bytes=1, joiner_counts=True):
        self.coordinator = Coordinator(members)
        self.workers = []
        self.given = []
        self.followed = []
        self.dead = []
        self._seen = {}
        self._members, self._make, self._at, self._portion_bytes = members, make, at, portion_bytes
        self._joiner_counts = joiner_counts

    def run(self):
        give_state, apply = exchange.give_state, ShadowFollower._apply

        def giving(group, packed):
            self.given.append(group.number.number)
            give_state(group, packed)

        def applying(follower, arrival, following):
            told = arrival.told
            self.followed.append((follower._node.session.node, told["kind"], arrival.parameters, told.get("version")))
            apply(follower, arrival, following)

        with (
            patch.object(exchange, "give_state", giving),
            patch.object(ShadowFollower, "_apply", applying),
            patch.object(shadow_feed, "PORTION_BYTES", self._portion_bytes),
        ):
            for rank in range(self._members):
                self.start(CHIEF + rank)
            for worker in self.workers:  # grows
                worker.wait()
        return self

    def start(self, seed=CHIEF + 9, counts=True):
        self.workers.append(Worker(self.coordinator, EPOCHS, self._make, self._at_work, seed, counts))
        self.workers[-1].start()  # which looks for itself among them

    def _at_work(self, worker, where):
        if where == "begun":
            if (worker, len(self.workers)) == (self.workers[0], self._members):
                self.coordinator.scale(self._members + 1)
                self.start(counts=self._joiner_counts)
            self.coordinator.until(lambda state: self._may_step(state, worker))
            self._seen[worker.id] = len(self.followed)
        self._at(worker, where)

    def _may_step(self, state, worker):
        """Hold steps back until there is a shadow, and until it has got something of each; not behind a death."""
        plan = state.job.plan
        if self.dead or any(worker.error for worker in self.workers):
            return True
        if plan is None:
            return len(self.coordinator.workers()) == self._members + 1
        if plan.kind is not PlanKind.SCALE:
            return True
        if plan.phase is Phase.SYNCING:
            return len(self.followed) > self._seen.get(worker.id, 0)
        return plan.phase not in (Phase.REGISTERED, Phase.ASSIGNED)

    @property
    def phase(self):
        plan = self.coordinator.state.job.plan
        return plan.phase if plan is not None and plan.kind is PlanKind.SCALE else None

    def left(self):
        """Return the workers that have trained to the end."""
        return [worker for worker in self.workers if worker.node.ended.args[0] == "left"]

    def proves(self):
        finished(self.coordinator, self.left(), EPOCHS)


class EarlyJob(GrowingJob):
    """A job of one, that another worker registers with before the first one has declared anything."""

    def __init__(self, make, at):
        super().__init__(1, make, at)

    def run(self):
        perform = AllReduceJob.perform

        def performing(job):
            if len(self.workers) == 1:
                self.coordinator.scale(2)
                self.start()
                self.workers[1].node.wait(lambda: self.workers[1].node.standing.current)
            perform(job)

        with patch.object(AllReduceJob, "perform", performing):
            return super().run()


class IdleJob(GrowingJob):
    """A job whose members make no step until the worker that joins has followed: they evaluate meanwhile, say."""

    def _may_step(self, state, worker):
        plan = state.job.plan
        return super()._may_step(state, worker) and (plan is None or plan.phase is not Phase.SYNCING)


def nbytes(model):
    return sum(each.nbytes for each in model.parameters())


def member(name):
    return Member(name, Role.WORKER, "127.0.0.1", 1)


def configuration(number, *names):
    return Configuration(ConfigId(1, number), tuple(map(member, names)), (), ())


def test_shadows_are_dealt_to_members_that_stay():
    current = configuration(1, "w0", "w1", "w2")
    assert givers(None, current) == {}
    assert givers(current, configuration(2, "w0", "w2", "w3")) == {"w3": "w2"}
    assert givers(current, configuration(2, "w0", "w1", "w3", "w4", "w5")) == {"w3": "w1", "w4": "w0", "w5": "w1"}
    assert givers(current, configuration(2, "w3")) == {}


class TestWholeJobs:
    pytestmark = whole_jobs

    @pytest.mark.parametrize("members", [1, 2])
    def test_a_joiner_holds_the_same_at_the_clock_and_takes_nothing_over_there(self, members):
        job = GrowingJob(members).run()
        assert len(job.left()) == members + 1
        job.proves()
        (plan,) = [plan for plan in job.coordinator.state.history if plan.cause == "operator"]
        assert job.given == ([1] if members > 1 else []), "first values, when the job begins"
        assert job.workers[-1].parts[0][0] == plan.clock + 1, "it has no samples of the first step"
        kinds = [kind for _, kind, _, _ in job.followed]
        assert kinds.count(SNAPSHOT) > 2, "in portions"
        between = kinds[kinds.index(SNAPSHOT) : len(kinds) - kinds[::-1].index(SNAPSHOT)]
        assert RECORD in between, "while it trains"
        joiner = job.workers[-1]
        assert joiner.node.report().copied >= 3 * nbytes(joiner.model), "parameters, and two states of each, or more"

    def test_a_joiner_that_has_followed_has_its_own_scripts_rate(self):
        """A schedule counts on from it: where the joiner became the chief at once, the rate had decayed twice."""
        rates = []

        def make(model):
            return torch.optim.AdamW(model.parameters(), lr=0.5 if len(job.workers) == 1 else 0.01)

        def at(worker, where):
            if where == "member":
                rates.append(worker.optimizer.param_groups[0]["lr"])

        job = GrowingJob(1, make, at)
        job.run().proves()
        assert rates == [0.01, 0.5]
        assert RECORD in [kind for _, kind, _, _ in job.followed]

    def test_a_joiner_whose_rehearsal_changes_other_buffers_averages_those_of_the_job(self):
        """By then the body does something else, by the epoch say; such a worker could never join."""
        job = GrowingJob(2, joiner_counts=False).run()
        assert len(job.left()) == 3
        assert job.given == [1], "it has followed"
        job.proves()

    def test_a_joiner_that_sums_something_else_ends_with_a_sentence_and_not_with_its_giver(self):
        """Gloo ends both processes where what they tell has other lengths."""
        shape = Replica.shape

        def told(replica):
            return shape(replica) + (job.workers[-1].optimizer is replica.optimizer and len(job.workers) == 3)

        job = GrowingJob(2)
        with patch.object(Replica, "shape", told), pytest.raises(ProtocolError, match="give all the same script"):
            job.run()
        assert SNAPSHOT not in [kind for _, kind, _, _ in job.followed]

    def test_a_joiner_follows_members_that_make_no_step(self):
        """It was given one portion a step, and expelled where an evaluation took ten minutes."""
        with patch.object(shadow_feed, "IDLE_SECONDS", 0.05):
            job = IdleJob(2).run()
        assert len(job.left()) == 3
        assert job.given == [1]
        kinds = [kind for _, kind, _, _ in job.followed]
        assert kinds[: kinds.count(SNAPSHOT)] == [SNAPSHOT] * kinds.count(SNAPSHOT)
        assert kinds.count(SNAPSHOT) > 2
        job.proves()

    def test_what_members_load_ahead_is_what_they_compute_behind_a_switch_too(self):
        """The batch of the step in which a worker joins was loaded as if that had samples of it, and thrown away."""
        ahead = {}

        def at(worker, where):
            position, place = worker.job.data_position, worker.job.place
            if where == "stepped" and worker.job._done:
                ahead[worker.id, worker.node.held] = position.upcoming(place, 4)

        job = GrowingJob(2, at=at).run()
        job.proves()
        (plan,) = [plan for plan in job.coordinator.state.history if plan.cause == "operator"]
        for worker in job.workers[:2]:
            computed = {version: positions for version, _, positions in worker.parts}
            for version in range(plan.clock - 1, plan.clock + 3):
                assert ahead[worker.id, version][:1] == [computed[version]] or place(SPEC, version).step == 0

    def test_members_that_differ_in_who_joins_divide_the_step_among_all(self):
        def forgets(worker, where):
            if where == "stepped" and worker is job.workers[0]:
                worker.job._exchange._division.stepped(None)

        job = GrowingJob(2, at=forgets)
        job.run().proves()
        (plan,) = [plan for plan in job.coordinator.state.history if plan.cause == "operator"]
        assert job.workers[-1].parts[0][0] == plan.clock
        assert [version for version, _, _ in job.workers[0].parts].count(plan.clock) == 2, "computed again"

    def test_the_joiner_gets_all_at_the_switch_where_gloo_fails_without_a_word(self):
        def broken(group, part):
            raise RuntimeError

        with patch.object(shadow_feed, "give_part", broken):
            job = GrowingJob(2).run()
        assert job.given == [1, 2]
        job.proves()

    @pytest.mark.parametrize("parts", [0, 3, 4, 11])
    def test_where_the_stream_breaks_off_the_joiner_gets_all_at_the_switch(self, parts):
        """It does within the first snapshot, within records, and between two."""
        sent = []
        give_part = shadow_feed.give_part

        def broken(group, part):
            sent.append(len(part))
            if len(sent) > parts:
                raise RuntimeError("Connection closed by peer")
            give_part(group, part)

        with patch.object(shadow_feed, "give_part", broken):
            job = GrowingJob(2).run()
        assert len(sent) == parts + 1
        assert job.given == [1, 2]
        job.proves()

    @pytest.mark.parametrize(("make", "limit"), [(adam, 0), (lambda model: OwnAdam(model.parameters(), lr=0.01), None)])
    def test_who_cannot_follow_gets_all_at_the_switch(self, make, limit):
        """As it is too slow, or as nobody knows that the optimizer updates each parameter by itself."""
        with ExitStack() as stack:
            if limit is not None:
                stack.enter_context(patch.object(shadow_feed, "WAITING_RECORDS", limit))
            job = GrowingJob(2, make).run()
        assert job.given == [1, 2]
        job.proves()

    @pytest.mark.parametrize("phase", [Phase.SYNCING, Phase.ARMED])
    @pytest.mark.parametrize("victim", ["giver", "other"])
    def test_a_member_may_die_while_another_worker_follows(self, victim, phase):
        def at(worker, where):
            index = 1 if victim == "giver" else 0
            if len(job.workers) == 3 and not job.dead and worker is job.workers[index] and job.phase is phase:
                job.dead.append(worker)
                raise Killed

        job = GrowingJob(2, at=at)
        job.run()
        assert len(job.dead) == 1
        (survivor,) = [worker for worker in job.workers[:2] if worker not in job.dead]
        if phase is Phase.ARMED:
            assert job.left() == [survivor, job.workers[2]]
        assert survivor in job.left()  # before ARMED a death ends the plan, and the job asks for no other worker
        job.proves()

    def test_who_came_before_the_first_declaration_does_not_begin_a_job_anew_that_has_trained(self):
        """It had heard of no parameters, and where it was given none it took its own for the job's."""

        def at(worker, where):
            trained = where == "begun" and worker.node.held > 0
            if trained and not job.dead and worker is job.workers[0] and job.phase is Phase.ARMED:
                job.dead.append(worker)
                raise Killed

        job = EarlyJob(lambda model: OwnAdam(model.parameters(), lr=0.01), at)
        job.run()
        assert len(job.dead) == 1
        assert job.workers[1].parts == []
        assert job.workers[1].status == 1, "nobody has the job's parameters any more"

    def test_who_follows_may_die(self):
        def dies(replica, *arguments):
            job.dead.append(replica)
            raise Killed

        job = GrowingJob(2)
        with patch.object(shadow_feed.Replica, "apply_portion", dies):
            job.run()
        assert len(job.dead) == 1
        assert len(job.left()) == 2
        job.proves()
