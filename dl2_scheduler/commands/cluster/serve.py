"""This module is `dl2 serve`: it lets a policy drive jobs of this machine, or of Kubernetes."""

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from dl2_scheduler.backends.clock import SystemClock
from dl2_scheduler.backends.local.cluster import LocalCluster
from dl2_scheduler.backends.local.core_pins import check_moves, core_threads, core_words
from dl2_scheduler.backends.local.elasticrun import ElasticrunRuntime
from dl2_scheduler.backends.local.job_records import JobRecords
from dl2_scheduler.backends.local.nodes import virtual_nodes
from dl2_scheduler.backends.local.settling import LocalPlacement
from dl2_scheduler.backends.local.tasks.cgroups import allowed_cores
from dl2_scheduler.backends.local.tasks.isolation import IsolationMode, make_isolation
from dl2_scheduler.backends.local.tasks.task_files import TaskFiles
from dl2_scheduler.cluster.document.template import SLOTS
from dl2_scheduler.cluster.durations import seconds
from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.commands.cluster.driving import Caution, Driving, driven, explored_part, placed_by
from dl2_scheduler.commands.cluster.foreground import held, signals_to
from dl2_scheduler.commands.cluster.kube_target import Context, Kube
from dl2_scheduler.commands.common import Folder, default_folder
from dl2_scheduler.learning.federated.shared_folder import shared_folder
from dl2_scheduler.learning.live.refit import model_to_refit
from dl2_scheduler.live.history import HISTORY_FILE, History
from dl2_scheduler.policies.placement.node_rules import SPREAD
from elastic_ps.system.extras import missing_package
from elastic_ps.system.jsonlog import JsonLines
from elastic_ps.system.option_groups import grouped
from elastic_ps.system.printable import LogLines, log_to_stderr
from elastic_ps.system.private_files import private_files
from elastic_ps.system.terminal import say


@dataclass(frozen=True)
class Pages:
    """`Pages` say where programs that watch this one are answered."""

    metrics: Annotated[
        str | None,
        typer.Option(metavar="[ADDRESS:]PORT", help="For Prometheus; port 0: a free one, which the log tells."),
    ] = None
    probes: Annotated[
        str | None, typer.Option(metavar="[ADDRESS:]PORT", help="For /healthz and /readyz, with --kube.")
    ] = None


@grouped
def serve(
    slots: Annotated[
        str | None, typer.Option(metavar="NODESxSLOTS", help="Virtual nodes and the task slots of each: 2x8.")
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(help="Name of the policy; a wrong one lists them all. Left out: the one used last, at first drf."),
    ] = None,
    slot: Annotated[str, typer.Option(metavar="TIME", help="Between two decisions: 30s, 20m.")] = "20m",
    placement: Annotated[
        str, typer.Option(help="spread, pack, round-robin, or a placement policy: a wrong one lists them.")
    ] = SPREAD,
    move_tasks: Annotated[
        int, typer.Option(metavar="N", help="Running tasks moved to other nodes in a slot where it pays; 0: none.")
    ] = 0,
    refit: Annotated[
        bool, typer.Option("--refit", help="The placement policy's model of speeds is fitted anew to live slots.")
    ] = False,
    isolation: Annotated[
        IsolationMode, typer.Option(help="By which tasks keep to their share of the cores.")
    ] = IsolationMode.AUTO,
    *,
    pages: Pages,
    folder: Folder = None,
    caution: Caution,
    learn: Annotated[bool, typer.Option("--learn", help="The policy, dl2:RUN, goes on learning.")] = False,
    learn_cores: Annotated[
        int, typer.Option(min=0, max=1, help="Cores that learning takes its share of; 0: only what nobody else uses.")
    ] = 0,
    explore: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT",
            help="Of the cluster, that jobs run as tells most; 0: none. Left out: 2% with --learn, else 0.",
        ),
    ] = None,
    share_with: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Clusters that learn tell each other there what they learnt."),
    ] = None,
    kube: Kube = False,
    namespace: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Whose ElasticJobs are served, with --kube; may be repeated. Left out: all."),
    ] = None,
    context: Context = None,
) -> None:
    """Run a cluster in the foreground: on this machine, or with --kube the ElasticJobs of a Kubernetes cluster.

    Its jobs outlive it, and a new one finds them.
    """
    state, length = (folder or default_folder()).absolute(), _slot_seconds(slot)
    placed, model = placed_by(placement, move_tasks), model_to_refit(placement) if refit else None
    if share_with is not None and not learn:
        raise BadInput("--share-with shares what is learnt: give --learn too, or leave it out")
    if learn_cores and not learn:
        raise BadInput("--learn-cores is what learning takes: give --learn too, or leave it out")
    driving = Driving(
        policy, *placed, caution.limits, caution.guard, learn, pages.metrics, move_tasks, model, learn_cores,
        explored_part(explore, learn),
    )  # fmt: skip
    log_to_stderr(JsonLines() if kube and not sys.stderr.isatty() else LogLines())
    if kube:
        _refuse_options_of_this_machine(slots, isolation)
        _serve_kube(length, _sharing(driving, share_with), state, namespace or (), context, pages.probes)
    else:
        _refuse_options_of_kubernetes({"--namespace": namespace, "--context": context, "--probes": pages.probes})
        _serve_local(slots, length, driving, state, isolation, share_with)


def _sharing(driving: Driving, folder: Path | None) -> Driving:
    """Return how a cluster is driven that shares what it learns, whose folder is made when all else is in order."""
    return driving if folder is None else replace(driving, share_with=shared_folder(folder))


def _refuse_options_of_this_machine(slots: str | None, isolation: IsolationMode) -> None:
    if slots is not None or isolation is not IsolationMode.AUTO:
        raise BadInput("--slots and --isolation are of a cluster of this machine: leave them out with --kube")


def _refuse_options_of_kubernetes(options: Mapping[str, object]) -> None:
    if given := [name for name, value in options.items() if value]:
        raise BadInput(f"{', '.join(given)}: of a Kubernetes cluster alone: give --kube too, or leave it out")


def _serve_local(
    slots: str | None,
    length: float,
    driving: Driving,
    state: Path,
    isolation: IsolationMode,
    share_with: Path | None,
) -> None:
    if slots is None:
        raise BadInput("give --slots, as in 2x8, for a cluster of this machine, or --kube for one of Kubernetes")
    nodes, driving = virtual_nodes(slots), _sharing(driving, share_with)
    clock = SystemClock()
    slots_in_all = sum(node.capacity[SLOTS] for node in nodes)
    cores = frozenset(os.sched_getaffinity(0))
    threads = core_threads(cores)
    if driving.most_moves:
        check_moves(nodes, cores, threads)
    with (
        private_files() as umask,
        held(state, private=True),
        closing(TaskFiles(state / "tasks", make_isolation(isolation, state), allowed_cores(), slots_in_all)) as tasks,
        closing(JobRecords(state / "jobs.sqlite", clock.now())) as records,
        closing(History(state / HISTORY_FILE)) as history,
    ):
        records.begin_from(history.next_slot)
        runtime = ElasticrunRuntime(state, clock.wake, tasks, umask)
        how = cores, driving.most_moves, threads
        placing = LocalPlacement(driving.placement, *how) if driving.placement else None
        cluster = LocalCluster(nodes, length, records, runtime, clock, driving.rule, placing)
        with signals_to(cluster.close), driven(cluster, cluster.desk, history, state, driving, cluster.settle) as loop:
            say(f"dl2: serving {state}: {slots} task slots, {loop.policy}, slots of {length:g} s")
            say(f"dl2: isolation: {tasks.words}")
            if placing is not None:
                say(f"dl2: placement: {placing.policy.name}: {core_words(nodes, cores, threads)}")
            loop.run()


def _serve_kube(
    length: float, driving: Driving, folder: Path, namespaces: Sequence[str], context: str | None, probes: str | None
) -> None:
    """Load the library of Kubernetes for this alone, as it is slow and may not be there, and serve."""
    try:
        from dl2_scheduler.commands.cluster.kube_serve import KubeOrder, serve_kube
    except ModuleNotFoundError as error:
        raise BadInput(f"--kube: {missing_package(error) or error}") from error
    serve_kube(KubeOrder(length, driving, folder, namespaces, context, probes))


def _slot_seconds(slot: str) -> float:
    try:
        return seconds(slot)
    except BadInput as error:
        raise BadInput(f"--slot: {error}") from error
