"""A program that plays one workload in the simulator of Sia's authors, under one policy.

    PYTHON -m benchmarks.sia_simulator.play --simulator FOLDER --workload FILE --policy sia --out FILE

PYTHON is an interpreter that has what the simulator needs, and this project's folder on its path; nothing else of the
project is needed. The simulator has no licence: its modules are imported from where its user has put them.
"""

import argparse
import contextlib
import json
import os
import sys
import time
import warnings
from dataclasses import fields
from pathlib import Path
from typing import Any

from benchmarks.sia_simulator.choice import ChoiceSettings
from benchmarks.sia_simulator.policy_classes import length_aware_policy, length_aware_sia
from benchmarks.sia_simulator.shortcuts import take_shortcuts

POLICIES = "sia", "gavel", "length-aware", "length-aware-sia"
ROUND = {"sia": 60, "gavel": 360, "length-aware": 60, "length-aware-sia": 60}
"""Seconds from one decision to the next, as the authors run Sia and Gavel."""
SIA_OPTIONS = {
    "p_fairness": -0.5,
    "restart_penalty": 30,
    "lambda_a": 0.01,
    "lambda_n": 1.1,
    "project_throughputs": True,
    "share_max_replicas": True,
}
"""As the authors' run_experiment.sh says."""


def main() -> int:
    """Play, and write what came of each job."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulator", type=Path, required=True, help="folder with the simulator's cluster.py")
    parser.add_argument("--workload", type=Path, required=True)
    parser.add_argument("--policy", choices=POLICIES, required=True)
    parser.add_argument("--restart", type=float, help="seconds, instead of what the simulator has for each model")
    parser.add_argument("--jobs", type=int, default=0, help="only the first of the workload; 0 for all")
    parser.add_argument("--slow", action="store_true", help="without shortcuts, which change no number")
    for field in fields(ChoiceSettings):
        parser.add_argument(f"--{field.name}", type=float, default=field.default, help="of the length-aware choice")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    sys.path.insert(0, str(arguments.simulator.resolve()))
    began = time.process_time()
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):  # it prints every decision
        cluster, rounds = played(arguments)
    jobs = cluster.jobs
    document = {
        "completion_seconds": {job.name: job.completion_time - job.submission_time for job in jobs},
        "restarts": {job.name: job.num_restarts or 0 for job in jobs},
        "gpu_seconds": {job.name: job.attained_service for job in jobs},
        "makespan": max(job.completion_time for job in jobs) - min(job.submission_time for job in jobs),
        "rounds": rounds,
        "core_seconds": time.process_time() - began,
    }
    arguments.out.write_text(json.dumps(document))
    return 0


def played(arguments: argparse.Namespace) -> tuple[Any, int]:
    """Return the simulator's cluster when all jobs have ended, and the number of rounds.

    Args:
        arguments: of the command.
    """
    import applications
    import cluster as clusters
    import goodput
    import job
    import pandas
    import sia
    import simulator_config as config

    config.sia_solver_verbose, config.sia_solver_num_threads = False, 1
    if not arguments.slow:
        take_shortcuts(goodput, job, applications)
    if arguments.restart is not None:
        set_restart(arguments.restart, applications.APPLICATIONS, sia)
    per_node = {name: config.cluster_ngpus_per_node[name] for name in config.cluster_nnodes}
    policy = make_policy(arguments, sia, config)
    policy.populate_valid_configs(config.cluster_nnodes, per_node, config.cluster_max_physical_nnodes)
    workload = pandas.read_csv(arguments.workload)
    cluster = clusters.Cluster(
        workload.head(arguments.jobs) if arguments.jobs else workload,
        policy,
        config.cluster_nnodes,
        per_node,
        max_physical_nodes=config.cluster_max_physical_nnodes,
    )
    if arguments.policy == "gavel":
        cluster.disable_bsz_tuning()
    cluster.step_log = lambda: None  # a line for each job in each round, which nobody reads
    rounds = 0
    while not cluster.all_complete():
        cluster.step(ROUND[arguments.policy])
        rounds += 1
    return cluster, rounds


def set_restart(seconds: float, all_applications: dict[str, dict[str, Any]], sia: Any) -> None:
    """Set the seconds that every restart takes, for the simulator and for its policies.

    Args:
        seconds: of a restart.
        all_applications: the simulator's, by GPU type and model.
        sia: the simulator's module of that name.
    """
    for of_type in all_applications.values():
        for application in of_type.values():
            application.rescale_time = seconds
    sia.get_restart_penalty = lambda _: seconds


def make_policy(arguments: argparse.Namespace, sia: Any, config: Any) -> Any:
    """Return the simulator's policy of that name, or ours as one of its policies.

    Args:
        arguments: of the command.
        sia: the simulator's module of that name.
        config: its settings.
    """
    if arguments.policy == "gavel":
        from gavel import GavelPolicy

        return GavelPolicy(ROUND["gavel"], policy=config.gavel_default_policy)
    if arguments.policy == "sia":
        return sia.SiaPolicy(**SIA_OPTIONS)
    settings = ChoiceSettings(**{field.name: getattr(arguments, field.name) for field in fields(ChoiceSettings)})
    make = length_aware_policy if arguments.policy == "length-aware" else length_aware_sia
    return make(sia.SiaPolicy, lambda name: sia.get_restart_penalty(name), settings)(**SIA_OPTIONS)


if __name__ == "__main__":
    sys.exit(main())
