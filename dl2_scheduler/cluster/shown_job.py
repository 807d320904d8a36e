"""This module says what is shown of a job and of its forecast, and makes the messages of them."""

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


def shown_job(job: JobStatus, forecast: Forecast | None, now: float) -> pb.JobStatus:
    """Return what is told of a job.

    Args:
        job: as it is now.
        forecast: see `shown_forecast`.
        now: unix seconds.
    """
    fields = {**asdict(job), "ended": job.ended or 0.0, "log": str(job.log or "")}
    del fields["arrival"]  # it tells decisions about this job from those about others of its name
    return pb.JobStatus(**fields, forecast=shown_forecast(job, forecast, now))
