"""This module writes into ElasticJobs' status when they will start and end, where that has changed enough."""

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

from dl2_scheduler.backends.kube.apiserver.object_reading import unix
from dl2_scheduler.backends.kube.apiserver.paced_writes import NotLeading, PacedWriter
from dl2_scheduler.backends.kube.placement.view import View
from dl2_scheduler.cluster.forecast import ExpectedTime, Forecast
from dl2_scheduler.cluster.snapshot import JobId
from k8s.foundation.api_server import ApiError, NotFound
from k8s.foundation.event_bodies import timestamp

log = logging.getLogger(__name__)

ForecastStatus = Mapping[str, str]
"""`status.forecast` of an ElasticJob: times as Kubernetes writes them, by their names."""

_NAMES = {"at": "", "low": "Earliest", "high": "Latest"}
_MOVED = 0.2  # part of an interval by which one of its times has to move before it is written again
_OLD = 3600.0  # seconds after which it is, so that nobody takes it for an old one


class ForecastWriter:
    """A `ForecastWriter` writes beside the loop: no slot waits for it.

    Args:
        view: of the cluster.
        writer: writes.
    """

    def __init__(self, view: View, writer: PacedWriter):
        self._view, self._writer = view, writer
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="forecasts")
        self._running: Future[None] | None = None
        self._closed = threading.Event()

    def tell(self, forecasts: Mapping[JobId, Forecast]) -> None:
        """Write these, unless earlier ones are still being written."""
        if self._running is None or self._running.done():
            self._running = self._pool.submit(self._write_or_tell, forecasts)

    def _write_or_tell(self, forecasts: Mapping[JobId, Forecast]) -> None:
        try:
            self.write(forecasts)
        except Exception:
            log.exception("forecasts could not be written")

    def write(self, forecasts: Mapping[JobId, Forecast]) -> None:
        """Write these, and return when that is done; what cannot be written is told again with the next ones."""
        for job in self._view.jobs():
            forecast = forecasts.get(job.id) if job.scaled else None
            if forecast is not None and forecast.is_of_another(job.created, time.time()):
                forecast = None
            change = change_of(job.status.forecast, forecast)
            if change is None:
                continue
            try:
                self._writer.tell_forecast(job, change)
            except NotFound:
                continue
            except NotLeading:
                return
            except ApiError as error:
                log.warning("%s: its forecast could not be written: %s", job.id, error)
            if self._closed.is_set():
                return

    def close(self) -> None:
        """Write no more, once what is being written is."""
        self._closed.set()
        self._pool.shutdown(cancel_futures=True)


def change_of(before: ForecastStatus, forecast: Forecast | None) -> dict[str, Any] | None:
    """Return the merge patch of `status.forecast` that tells a forecast; None: what is there tells it.

    Args:
        before: what is there.
        forecast: of the job; None: nobody knows, or it has ended.
    """
    if forecast is None:
        return {"forecast": None} if before else None
    now = dict(_times(forecast))
    there = {name: at for name, text in before.items() if (at := unix(text)) is not None}
    if now.keys() == there.keys() and now["made"] - there["made"] < _OLD:
        events = (event for event in (forecast.start, forecast.end) if event is not None)
        narrowest = min(event.high - event.low for event in events)
        if all(abs(now[name] - there[name]) <= _MOVED * narrowest for name in now if name != "made"):
            return None
    gone: dict[str, Any] = dict.fromkeys(before.keys() - now.keys())
    return {"forecast": {**gone, **{name: timestamp(datetime.fromtimestamp(at, UTC)) for name, at in now.items()}}}


def forecast_of(status: ForecastStatus, now: float) -> Forecast | None:
    """Return the forecast that a job's status tells; None: it tells none, or an old one.

    Args:
        status: see `ForecastStatus`.
        now: unix seconds.
    """
    made = unix(status.get("made"))
    if made is None or now - made > 2 * _OLD:
        return None
    return Forecast(made, _event(status, "start"), _event(status, "end"))


def _event(status: ForecastStatus, event: str) -> ExpectedTime | None:
    times = {name: unix(status.get(event + suffix)) for name, suffix in _NAMES.items()}
    known = {name: at for name, at in times.items() if at is not None}
    return ExpectedTime(**known) if len(known) == len(_NAMES) else None


def _times(forecast: Forecast) -> Iterator[tuple[str, float]]:
    yield "made", forecast.made
    for event, expected in (("start", forecast.start), ("end", forecast.end)):
        for one in fields(ExpectedTime) if expected is not None else ():
            yield event + _NAMES[one.name], getattr(expected, one.name)
