"""This module is `dl2 serve`: it lets a policy drive jobs of this machine, or of Kubernetes."""

import os
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from dl2_scheduler.backends.clock import SystemClock
from dl2_scheduler.backends.local.cluster import LocalCluster
from dl2_scheduler.backends.local.job_records import JobRecords
from dl2_scheduler.backends.local.launchers.elasticrun import ElasticrunRuntime
from dl2_scheduler.backends.local.places.core_pins import check_moves, core_threads, core_words
from dl2_scheduler.backends.local.places.nodes import virtual_nodes
from dl2_scheduler.backends.local.places.settling import LocalPlacement
from dl2_scheduler.backends.local.tasks.cgroups import allowed_cores
from dl2_scheduler.backends.local.tasks.isolation import make_isolation
from dl2_scheduler.backends.local.tasks.task_files import TaskFiles
from dl2_scheduler.cluster.document.template import SLOTS
from dl2_scheduler.cluster.durations import seconds
from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.commands.cluster.serving.driving import Driving, driven
from dl2_scheduler.commands.cluster.serving.foreground import held, signals_to
from dl2_scheduler.commands.cluster.serving.serve_options import (
    Caution,
    Kubernetes,
    Learning,
    Pages,
    Placing,
    ThisMachine,
)
from dl2_scheduler.commands.common import Folder, default_folder
from dl2_scheduler.learning.federated.shared_folder import shared_folder
from dl2_scheduler.live.history import HISTORY_FILE, History
from elastic_ps.system.extras import missing_package
from elastic_ps.system.jsonlog import JsonLines
from elastic_ps.system.option_groups import grouped
from elastic_ps.system.printable import LogLines, log_to_stderr
from elastic_ps.system.private_files import private_files
from elastic_ps.system.terminal import say


@grouped
def serve(
    *,
    here: ThisMachine,
    policy: Annotated[
        str | None,
        typer.Option(help="Name of the policy; a wrong one lists them all. Left out: the one used last, at first drf."),
    ] = None,
    slot: Annotated[str, typer.Option(metavar="TIME", help="Between two decisions: 30s, 20m.")] = "20m",
    placing: Placing,
    pages: Pages,
    folder: Folder = None,
    caution: Caution,
    learning: Learning,
    kubernetes: Kubernetes,
) -> None:
    """Run a cluster in the foreground: on this machine, or with --kube the ElasticJobs of a Kubernetes cluster.

    Its jobs outlive it, and a new one finds them.
    """
    state, length = (folder or default_folder()).absolute(), _slot_seconds(slot)
    driving = _driving(policy, placing, caution, learning, pages)
    log_to_stderr(JsonLines() if kubernetes.kube and not sys.stderr.isatty() else LogLines())
    if kubernetes.kube:
        _refuse_options_of_this_machine(here)
        _serve_kube(kubernetes, length, _sharing(driving, learning.share_with), state, pages.probes)
    else:
        _refuse_options_of_kubernetes(kubernetes, pages)
        _serve_local(here, length, driving, state, learning.share_with)


def _driving(policy: str | None, placing: Placing, caution: Caution, learning: Learning, pages: Pages) -> Driving:
    """Return how the cluster is driven, as the options say."""
    rule, placement = placing.found
    return Driving(
        policy,
        rule,
        placement,
        refit=placing.model,
        most_moves=placing.move_tasks,
        limits=caution.limits,
        guard=caution.guard,
        learn=learning.learn,
        learn_cores=learning.learn_cores,
        explore=learning.explored,
        metrics=pages.metrics,
    )


def _sharing(driving: Driving, folder: Path | None) -> Driving:
    """Return how a cluster is driven that shares what it learns, whose folder is made when all else is in order."""
    return driving if folder is None else replace(driving, share_with=shared_folder(folder))


def _refuse_options_of_this_machine(here: ThisMachine) -> None:
    if here.given:
        raise BadInput("--slots and --isolation are of a cluster of this machine: leave them out with --kube")


def _refuse_options_of_kubernetes(kubernetes: Kubernetes, pages: Pages) -> None:
    options = {"--namespace": kubernetes.namespace, "--context": kubernetes.context, "--probes": pages.probes}
    if given := [name for name, value in options.items() if value]:
        raise BadInput(f"{', '.join(given)}: of a Kubernetes cluster alone: give --kube too, or leave it out")


def _serve_local(here: ThisMachine, length: float, driving: Driving, state: Path, share_with: Path | None) -> None:
    if here.slots is None:
        raise BadInput("give --slots, as in 2x8, for a cluster of this machine, or --kube for one of Kubernetes")
    nodes, driving = virtual_nodes(here.slots), _sharing(driving, share_with)
    clock = SystemClock()
    slots_in_all = sum(node.capacity[SLOTS] for node in nodes)
    cores = frozenset(os.sched_getaffinity(0))
    threads = core_threads(cores)
    if driving.most_moves:
        check_moves(nodes, cores, threads)
    with (
        private_files() as umask,
        held(state, private=True),
        closing(
            TaskFiles(state / "tasks", make_isolation(here.isolation, state), allowed_cores(), slots_in_all)
        ) as tasks,
        closing(JobRecords(state / "jobs.sqlite", clock.now())) as records,
        closing(History(state / HISTORY_FILE)) as history,
    ):
        records.begin_from(history.next_slot)
        runtime = ElasticrunRuntime(state, clock.wake, tasks, umask)
        how = cores, driving.most_moves, threads
        placing = LocalPlacement(driving.placement, *how) if driving.placement else None
        cluster = LocalCluster(nodes, length, records, runtime, clock, driving.rule, placing)
        with signals_to(cluster.close), driven(cluster, cluster.desk, history, state, driving, cluster.settle) as loop:
            say(f"dl2: serving {state}: {here.slots} task slots, {loop.policy}, slots of {length:g} s")
            say(f"dl2: isolation: {tasks.words}")
            if placing is not None:
                say(f"dl2: placement: {placing.policy.name}: {core_words(nodes, cores, threads)}")
            loop.run()


def _serve_kube(kubernetes: Kubernetes, length: float, driving: Driving, state: Path, probes: str | None) -> None:
    """Load the library of Kubernetes for this alone, as it is slow and may not be there, and serve."""
    try:
        from dl2_scheduler.commands.cluster.serving.kube_serve import KubeOrder, serve_kube
    except ModuleNotFoundError as error:
        raise BadInput(f"--kube: {missing_package(error) or error}") from error
    serve_kube(KubeOrder(length, driving, state, kubernetes.namespace or (), kubernetes.context, probes))


def _slot_seconds(slot: str) -> float:
    try:
        return seconds(slot)
    except BadInput as error:
        raise BadInput(f"--slot: {error}") from error
