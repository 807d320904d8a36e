"""This module makes the next configuration of what is wanted: what is refused, who leaves, who owns what."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from coordinator.core.job import DurableJob
from coordinator.core.plans.best_fit import best_fit, leaving_server_order
from coordinator.core.plans.followers import NOBODY, fill, place
from coordinator.core.plans.scale_goal import ScaleGoal, ScaleRequest
from coordinator.core.records import remembered
from elastic_ps.core.configuration import ConfigId, Configuration, Member, NodeId, Role
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.core.script_hints import OPTIMIZER_ON_SERVERS

ELASTIC_LINES = """\
    import elastic_ps
    elastic_ps.init()
    sampler = elastic_ps.Sampler(len(dataset), global_batch=B)
    for epoch in elastic_ps.epochs(n):
        for step, indices, batch in sampler:"""


@dataclass(frozen=True)
class RosterChange:
    """A change says what a goal asks for, compared with the configuration in force."""

    workers: int = 0
    servers: int = 0
    leavers: tuple[NodeId, ...] = ()

    def joining(self, role: Role) -> int:
        """Return how many nodes of a role have to join."""
        return self.workers if role is Role.WORKER else self.servers

    def __bool__(self) -> bool:
        return bool(self.workers or self.servers or self.leavers)


@remembered
def change(job: DurableJob, goal: ScaleGoal) -> RosterChange:
    """Return what has to happen. Who leaves is whom the goal names, else servers by bytes to move, workers by rank."""
    configuration = job.configuration
    if configuration is None:
        return RosterChange(goal.workers, goal.servers)
    present = [worker.id for worker in reversed(configuration.workers)]
    workers, left_workers = _split(present, goal.drains, goal.workers)
    if job.all_reduces and len(left_workers) == len(present):
        # Who joins a job without servers follows a worker that stays; so the chief goes by the next plan.
        workers, left_workers = _split(present, goal.drains - {configuration.chief}, goal.workers + 1)
    servers, left_servers = _split([server.id for server in configuration.servers], goal.drains, goal.servers)
    if left_servers:  # else their order, for which every block is looked at, does not matter
        servers, left_servers = _split(_as_they_leave(job, configuration), goal.drains, goal.servers)
    return RosterChange(workers, servers, (*left_workers, *left_servers))


def granting(job: DurableJob, wishes: Iterable[ScaleRequest]) -> ScaleGoal:
    """Return what the job will be wanted to be with requests taken up."""
    return job.goal.granting(wishes, lambda goal: change(job, goal).leavers)


def _as_they_leave(job: DurableJob, configuration: Configuration) -> list[NodeId]:
    """Return the servers of a configuration in the order in which they would leave."""
    order: Sequence[int] = tuple(reversed(range(len(configuration.servers))))
    if configuration.assignment:
        order = leaving_server_order(sizes(job), configuration.assignment, len(order))
    return [configuration.servers[index].id for index in order]


def _split(candidates: Sequence[NodeId], drains: frozenset[NodeId], count: int) -> tuple[int, list[NodeId]]:
    """Return how many join and who leaves; `candidates` stand in the order in which they would leave."""
    stay = [node for node in candidates if node not in drains]
    extra = max(0, len(stay) - count)
    return max(0, count - len(stay)), [node for node in candidates if node in drains] + stay[:extra]


def sizes(job: DurableJob) -> list[int]:
    """Return the bytes of each block."""
    return [block.nbytes for block in job.model.blocks]


def static_reason(job: DurableJob) -> str:
    """Return why the number of workers cannot change, with what to do; "" where it can."""
    if job.model.blocks and not job.elastic:
        return (
            "its script draws its own batches (data: static), so another number of workers would train on other data. "
            f"These lines make the script elastic:\n{ELASTIC_LINES}"
        )
    return ""


def refusal(job: DurableJob, goal: ScaleGoal) -> str:
    """Return why a goal cannot be reached, with what to do; "" where it can.

    Besides counts and blocks: data that the script draws by itself allows no other workers, and optimizers that live in
    the workers could not reach a worker that joins.
    """
    if job.all_reduces and goal.servers:
        return "this job has no servers, and gets none: its workers all-reduce (--mode all-reduce). Scale its workers"
    for role in (Role.WORKER,) if job.all_reduces else tuple(Role):
        if goal.count(role) < 1:
            return f"a job needs at least 1 {role}, not {goal.count(role)}; `elasticctl stop` ends a job"
    asked = change(job, goal)
    if asked.servers and (why := too_many_servers(job, goal.servers)):
        return why
    if job.configuration is None:
        return ""
    leaving = [node for node in asked.leavers if node in job.configuration.ranks]
    if (asked.workers or leaving) and (why := static_reason(job)):
        return f"workers can neither join nor leave this job: {why}"
    if asked.workers and job.data is not None and job.elastic and job.is_sync and goal.workers > job.data.global_batch:
        return (
            f"{goal.workers} workers, but a step has a global batch of {job.data.global_batch} samples: the workers "
            "beyond would have none"
        )
    if asked.workers and job.local_update:
        return (
            "workers cannot join this job: its optimizers live in the workers, so a new one would not have their "
            f"state: give the job {OPTIMIZER_ON_SERVERS}"
        )
    return ""


def too_many_servers(job: DurableJob, servers: int) -> str:
    """Say why a job cannot have so many servers; "": it can, or nobody knows its blocks yet."""
    blocks = len(job.model.blocks)
    if not blocks or servers <= blocks:
        return ""
    held = f"{blocks} block{'s' if blocks > 1 else ''}"
    return f"{servers} servers, but the model has only {held}, so that some would hold nothing"


def target(
    job: DurableJob, joiners: Sequence[Member], leavers: Sequence[NodeId], number: ConfigId, replicas: int = 0
) -> Configuration:
    """Return the next configuration (DL2 section 5, step 2).

    Args:
        job: as it is.
        joiners: members that come.
        leavers: nodes that go.
        number: of the configuration.
        replicas: servers that are to follow each block; with one server nobody can.

    Raises:
        ConfigurationError: servers join that would hold nothing.
    """
    old = job.configuration
    stay = [m for m in (old.members.values() if old else ()) if m.id not in leavers]
    roster = [*stay, *joiners]
    workers = tuple(member for member in roster if member.role is Role.WORKER)
    servers = tuple(member for member in roster if member.role is Role.SERVER)
    blocks = len(job.model.blocks)
    if any(joiner.role is Role.SERVER for joiner in joiners) and (why := too_many_servers(job, len(servers))):
        raise ConfigurationError(why)
    if old is not None and servers == old.servers:
        same = Configuration(number, workers, servers, old.assignment)
        return replace(same, followers=filled(job, old)) if replicas else same
    index = {member.id: place for place, member in enumerate(servers)}
    owners = [index.get(old.primary(block)) for block in range(blocks)] if old else [None] * blocks
    assignment = best_fit(sizes(job), owners, len(servers)) if blocks and servers else ()
    if not replicas:
        return Configuration(number, workers, servers, assignment)
    before = [index.get(old.follower(block) or "") for block in range(blocks)] if old else [None] * blocks
    followers = place(sizes(job), assignment, [server.failure_domain for server in servers], before, owners)
    return Configuration(number, workers, servers, assignment, followers)


def filled(job: DurableJob, configuration: Configuration) -> tuple[int, ...]:
    """Return the followers of all blocks, where those that a configuration names stay; () where nobody can follow.

    Args:
        job: whose blocks these are.
        configuration: that may lack followers; its assignment is of all blocks.
    """
    known = [server if server != NOBODY else None for server in configuration.followers]
    before = [*known, *[None] * (len(configuration.assignment) - len(known))]
    return fill(
        sizes(job), configuration.assignment, [server.failure_domain for server in configuration.servers], before
    )


def grown_followers(job: DurableJob, assignment: tuple[int, ...], replicas: int) -> tuple[int, ...]:
    """Return the followers of all blocks of a model that has grown: those of the known ones stay, also where missing.

    Args:
        job: with the model as it is now, and the configuration as it was.
        assignment: of all blocks.
        replicas: servers that are to follow each new block.
    """
    configuration = job.configuration
    assert configuration is not None, "a model grows in a configuration"
    known = len(configuration.assignment)
    followers = configuration.followers or (NOBODY,) * known
    new = filled(job, configuration.extended(assignment, configuration.followers))[known:] if replicas else ()
    followers = (*followers, *(new or (NOBODY,) * (len(assignment) - known)))
    return followers if set(followers) - {NOBODY} else ()
