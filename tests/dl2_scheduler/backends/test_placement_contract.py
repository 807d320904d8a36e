"""One contract of placement policies on all three backends: never over what a node has, never half a job, the same
again, and a reason for each choice."""

from collections import Counter

import numpy as np
import pytest

from dl2_scheduler.backends.kube.apiserver.object_reading import job_of, node_of, pod_of
from dl2_scheduler.backends.kube.placement.binding import decide
from dl2_scheduler.backends.local.job_records import JobRecord
from dl2_scheduler.backends.local.places.nodes import virtual_nodes
from dl2_scheduler.backends.local.places.settling import Settling
from dl2_scheduler.cluster.document.job_document import read_document
from dl2_scheduler.cluster.free_resources import NodeRule
from dl2_scheduler.cluster.hardware.view import check_placement
from dl2_scheduler.cluster.placement.guarded_placement import GuardedPlacement
from dl2_scheduler.cluster.snapshot import Allocation, Grant
from dl2_scheduler.policies.learnt.graph.agent_files import save_agents
from dl2_scheduler.policies.learnt.placer import LearntPlacer, placer_shapes
from dl2_scheduler.policies.learnt.placer_files import PlacerRun, save_placer
from dl2_scheduler.policies.placement.registry import PLACEMENT_NAMES, make_placement, spread_placement
from dl2_scheduler.policies.placement.speed_model import save_speed_model
from tests.dl2_scheduler.kube_objects import NOW, gang, job, node
from tests.dl2_scheduler.local_cases import HERE
from tests.dl2_scheduler.played_cluster import document
from tests.dl2_scheduler.policies.placement.fitted import MODELS, drawn_agents, drawn_model
from tests.dl2_scheduler.policies.placement.test_placement_policies import job as simulated_job
from tests.dl2_scheduler.policies.placement.test_placement_policies import view_of

NODES, SLOTS = 3, 6
KINDS = sorted({name.partition(":")[0] for name in PLACEMENT_NAMES} - {"MODULE"})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder, model, rng = tmp_path_factory.mktemp("run"), drawn_model(), np.random.default_rng(0)
    shapes = placer_shapes(len(MODELS), {"hidden.bias": (8,)})
    placer = LearntPlacer({name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()})
    save_placer(folder, PlacerRun(MODELS, placer, model.speeds))
    save_agents(folder, drawn_agents(), model.profiles)
    save_speed_model(folder, model)
    return folder


@pytest.fixture(params=KINDS)
def name(request, run):
    return next(each for each in PLACEMENT_NAMES if each.partition(":")[0] == request.param).replace(
        each_ending(request.param), f":{run}"
    )


def each_ending(kind):
    return ":RUN" if kind in ("learnt", "agents") else ":MODEL"


def drawn(seed):
    """Some jobs: type, workers, servers."""
    rng = np.random.default_rng(seed)
    types = [*MODELS, "never-seen"]
    return [(types[rng.integers(len(types))], *(int(n) for n in rng.integers(1, 4, size=2))) for _ in range(5)]


def guarded(name):
    return GuardedPlacement(make_placement(name), spread_placement())


def simulated(name, seed):
    """Where tasks are by job, and reasons: as the simulator asks."""
    wanted = [(model, w, s) for model, w, s in drawn(seed) if model in MODELS]
    view = view_of([simulated_job(number, *each) for number, each in enumerate(wanted)], nodes=NODES)
    policy = make_placement(name)
    places = policy.place(view)
    check_placement(view, places)
    said = policy.explain(view, places, [f"node-{n}" for n in range(NODES)])
    counts = {number: (len(roles[0]), len(roles[1])) for number, roles in places.groups.items()}
    assert all(counts[number] == wanted[number][1:] for number in counts)
    return places.groups, said


def local(name, seed):
    wanted = {f"job-{number}": each for number, each in enumerate(drawn(seed))}
    documents = [
        document(called, workers=w, servers=s).replace(": digits\n", f": {model}\n")
        for called, (model, w, s) in wanted.items()
    ]
    records = [JobRecord(number, read_document(text), HERE, 0.0) for number, text in enumerate(documents)]
    assert [record.name for record in records] == list(wanted)
    settling = Settling(virtual_nodes(f"{NODES}x{SLOTS}"), guarded(name), 0.0)
    settled = settling.settle(records, Allocation({j: Grant(w, s) for j, (_, w, s) in wanted.items()}), 0.0)
    used, found, said = Counter(), {}, {}
    for number, (called, (_, *counts)) in enumerate(wanted.items()):
        grant, (workers, servers) = settled.allocation.of(called), settled.places[number]
        used.update([*workers, *servers])
        assert (len(workers), len(servers)) == (grant.workers, grant.servers)
        assert [grant.workers, grant.servers] in ([0, 0], counts)
        assert grant.reason
        if grant.workers:
            found[number], said[number] = (workers, servers), grant.reason
    assert max(used.values(), default=0) <= SLOTS
    return found, said


def kube(name, seed):
    wanted = drawn(seed)
    nodes = [node_of(node(f"node-{n}", cpu=str(SLOTS))) for n in range(NODES)]
    pods = [pod_of(pod) for n, (_, w, s) in enumerate(wanted) for pod in gang(f"job-{n}", w, s)]
    jobs = [
        job_of(job(f"job-{n}", (w, w), (s, s), created=n, modelType=model, allocation=(w, s)))
        for n, (model, w, s) in enumerate(wanted)
    ]
    decided = decide(nodes, pods, jobs, NOW, NodeRule.SPREAD, policy=guarded(name))
    used, found = Counter(), {}
    for binding in decided.bindings:
        used[binding.node] += binding.pod.requests["cpu"]
        found.setdefault(binding.pod.job, Counter())[binding.pod.role] += 1
    assert all(amount <= SLOTS + 1e-9 for amount in used.values())
    for n, (_, w, s) in enumerate(wanted):
        assert found.get(f"job-{n}") in (None, {"coordinator": 1, "worker": w, "server": s})
    assert {key[1] for key in decided.placed} == set(found)
    where = {(binding.pod.name): binding.node for binding in decided.bindings}
    return where, decided.placed


@pytest.mark.parametrize("backend", [simulated, local, kube], ids=lambda each: each.__name__)
def test_the_contract(backend, name):
    placed = 0
    for seed in range(3):
        found, said = backend(name, seed)
        assert (found, said) == backend(name, seed)
        assert all(said.values())
        placed += len(found)
    assert placed
