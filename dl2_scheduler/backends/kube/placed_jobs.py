"""This module tells where the tasks of ElasticJobs are, and how fast their jobs train there. Pure."""

from collections.abc import Mapping, Sequence

from dl2_scheduler.backends.kube.apiserver.objects import JobInfo, PodInfo
from dl2_scheduler.backends.slot_samples import PlacedJob
from k8s.foundation.names import SERVER, WORKER


def placed_jobs(jobs: Sequence[JobInfo], pods: Sequence[PodInfo], before: Mapping[str, float]) -> list[PlacedJob]:
    """Return the jobs that have pods of workers or servers, held ones too, by creation.

    The operator tells a job's speed every few seconds. One that has got no further in a slot has not told any: its
    operator, or its coordinator, may stand still.

    Args:
        jobs: that are served.
        pods: all that have not ended.
        before: epochs that each job had trained at the slot's start, by its uid.
    """
    own: dict[tuple[str, str], list[PodInfo]] = {}
    for pod in pods:
        if pod.role in (WORKER, SERVER):
            own.setdefault(pod.key, []).append(pod)
    here = sorted((job for job in jobs if job.key in own), key=lambda job: (job.created, job.key))
    return [_placed(job, own[job.key], before) for job in here]


def _placed(job: JobInfo, own: Sequence[PodInfo], before: Mapping[str, float]) -> PlacedJob:
    told = job.status
    workers, servers = (sorted(pod.node for pod in own if pod.role == role) for role in (WORKER, SERVER))
    settled = (
        told.phase == "Running"
        and (len(workers), len(servers)) == (told.workers, told.servers)
        and all(pod.node and not pod.deleting for pod in own)
        and told.epoch > before.get(job.uid, told.epoch)
    )
    number = job.uid, *sorted(pod.uid for pod in own)
    return PlacedJob(number, job.model, tuple(workers), tuple(servers), told.samples_per_second if settled else 0.0)
