"""This module says what of a forecast is shown of a job, and makes the message of it."""

from dataclasses import asdict

from dl2_scheduler.cluster.desk import JobStatus, LiveJobPhase
from dl2_scheduler.cluster.forecast import Forecast
from protos import cluster_pb2 as pb


def shown_forecast(job: JobStatus, forecast: Forecast | None, now: float) -> pb.Forecast | None:
    """Return what is told of a job's future; None: it has ended, its owner decides about it, or nobody knows.

    Args:
        job: as it is now.
        forecast: that was made last for a job of its name.
        now: unix seconds.
    """
    if forecast is None or job.phase.ended or job.held:
        return None
    if forecast.is_of_another(job.submitted, now):
        return None
    start = forecast.start if job.phase is LiveJobPhase.WAITING else None
    end = forecast.end if job.epochs else None
    when = {name: pb.ExpectedTime(**asdict(each)) for name, each in (("start", start), ("end", end)) if each}
    return pb.Forecast(made=forecast.made, **when) if when else None
