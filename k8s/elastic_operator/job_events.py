"""This module writes events on one job's object: where the API server will not have one, the job goes on without."""

import logging
from collections.abc import Callable

from k8s.elastic_operator.api_writes import OperatorApi
from k8s.elastic_operator.job.model import Body, Desired
from k8s.foundation.api_server import ApiError

log = logging.getLogger(__name__)


class JobEvents:
    """`JobEvents` are what people are told of one job. Its methods raise NotLeader.

    Args:
        api: the API server.
        body: returns the job's object.
    """

    def __init__(self, api: OperatorApi, body: Callable[[], Body]):
        self._api, self._body = api, body
        self._complained = ""

    async def tell(self, reason: str, message: str, warning: bool = True) -> None:
        """Write an event.

        Args:
            reason: one word, in camel case.
            message: for people.
            warning: rather than normal.
        """
        job = Desired.of(self._body())
        try:
            await self._api.write_event(job, reason, message, warning)
        except ApiError as error:  # a quota on events, a server that is busy
            name = f"{job.namespace}/{job.name}"
            log.warning("%s: no event %s (%s): %s", name, reason, message, error, extra={"job": name})

    async def complain(self, what: str) -> None:
        """Tell, once, what the API server will not have; `what`: its sentence; "": it has all."""
        if what and what != self._complained:
            self._complained = what
            await self.tell("Refused", what)
