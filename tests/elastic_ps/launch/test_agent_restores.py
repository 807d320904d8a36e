"""A restore ends all of a job's processes: the launcher starts its own again, and leaves those of others to them."""

from elastic_ps.core.errors import EXIT_RESTART
from tests.elastic_ps.launch.launch_stage import Job, Puppet, StartJob, over, running


def restored(start_job: StartJob, **settings: object) -> tuple[Job, Puppet]:
    """A job of two workers goes back to its checkpoint; another launcher has started one of them. Returns the new one.

    It has registered; the other launcher's has not yet.
    """
    job, (old,) = running(start_job, **settings)
    nodes = {old.name: "w0", "elsewhere": "w1"}
    job.fake.want(workers=2, nodes=nodes)
    job.fake.want(workers=2, nodes=nodes, restarting=list(nodes), starting_workers=2)
    old.tell(f"exit {EXIT_RESTART}")
    assert job.exit_of(old) == EXIT_RESTART
    (new,) = job.workers(1)
    job.transcript.wait_for("w1 has a launcher of its own, which starts it again")
    job.fake.want(workers=2, nodes={new.name: "w2"}, starting_workers=1)
    job.transcript.wait_for("w2 has joined")
    return job, new


def test_what_another_launcher_starts_again_after_a_restore_is_not_started_here_besides(start_job: StartJob) -> None:
    job, new = restored(start_job)
    job.fake.want(workers=2, nodes={new.name: "w2", "again": "w3"})
    job.fake.want(workers=3, nodes={new.name: "w2", "again": "w3"}, starting_workers=1)  # nobody is waited for now
    (third,) = job.workers(1)
    job.fake.want(workers=3, nodes={new.name: "w2", "again": "w3", third.name: "w4"})
    job.transcript.wait_for(f"w4 has joined (pid {third.pid})")
    assert over(job, new, third).status == 0


def test_another_launchers_node_that_does_not_come_back_is_replaced(start_job: StartJob) -> None:
    job, new = restored(start_job, join_timeout=0.5)
    (second,) = job.workers(1)
    job.fake.want(workers=2, nodes={new.name: "w2", second.name: "w3"})
    job.transcript.wait_for(f"w3 has joined (pid {second.pid})")
    assert over(job, new, second).status == 0


def test_another_launchers_node_that_is_expelled_is_not_waited_for(start_job: StartJob) -> None:
    """It is frozen, or its machine is gone: its launcher does not start it again soon."""
    job, new = restored(start_job)
    job.fake.want(workers=2, nodes={new.name: "w2"}, expelled=["elsewhere"], starting_workers=1)
    (second,) = job.workers(1)
    job.fake.want(workers=2, nodes={new.name: "w2", second.name: "w3"})
    job.transcript.wait_for(f"w3 has joined (pid {second.pid})")
    assert over(job, new, second).status == 0
