"""This module follows one job's coordinator: its stream says what it wants, and calls now and then what people read."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

import grpc

from coordinator.client import CALL_SECONDS, ClientError, CoordinatorClient
from elastic_ps.control.channels import NotTheCoordinator, connection_options, greeted
from k8s.elastic_operator.job.report import CoordinatorReport
from protos import elastic_pb2 as pb
from protos import elastic_pb2_grpc as rpc

log = logging.getLogger(__name__)

_POLL_SECONDS = 3.0
_PLAN_SECONDS = 0.5
"""Instead, while a plan is under way: the stream does not tell its end."""
_AWAY_SECONDS = 0.5


class CoordinatorFollower:
    """A `CoordinatorFollower` follows the coordinator at one address until `close`.

    Args:
        address: host:port of its pod.
        token: the job's secret.
        wake: called when there is something new.
    """

    def __init__(self, address: str, token: bytes, wake: Callable[[], None]):
        self.address = address
        self.client = CoordinatorClient(address, token)
        self.report: CoordinatorReport | None = None
        self.heard = time.monotonic()
        self.stranger = ""  # why the coordinator does not take us for its job's operator
        self._odd = ""  # what was wrong with its last words that were not understood
        self._token = token
        self._wake = wake
        self._wanted: pb.Wanted | None = None
        self._plans: tuple[tuple[int, ...], list[pb.Plan]] = ((), [])
        self._asked = asyncio.Event()
        self._tasks = [
            asyncio.create_task(self._listen(), name=f"listen-{address}"),
            asyncio.create_task(self._ask(), name=f"ask-{address}"),
        ]

    async def close(self) -> None:
        """Stop following."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.client.close()

    async def _listen(self) -> None:
        """Keep the launcher's stream open."""
        async with grpc.aio.insecure_channel(self.address, options=connection_options()) as channel:
            stub = rpc.CoordinatorStub(channel)
            while True:
                try:
                    shown = await greeted(channel, self._token)
                    async for message in stub.Attach(pb.AttachRequest(), metadata=shown):
                        self._wanted, self.stranger = message, ""
                        self._asked.set()
                except grpc.RpcError as error:
                    self._note(error)
                except Exception as error:  # noqa: BLE001  # it is told of: whoever answers there may say anything
                    self._wonder(error)
                self._wanted, self.report = None, None
                self._wake()
                await asyncio.sleep(_AWAY_SECONDS)

    def _note(self, error: grpc.RpcError) -> None:
        """Note that the stream has ended, or has never begun."""
        log.debug("no stream from %s: %s", self.address, error.code())
        if not isinstance(error, NotTheCoordinator):
            return
        if not self.stranger:
            log.error("%s refuses the token: the operator's key has changed since the job began", self.address)
        self.stranger = error.details() or error.code().name

    async def _ask(self) -> None:
        """Ask for status and plans after every message of the stream, and now and then."""
        while True:
            scaling = self.report is not None and self.report.plan
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._asked.wait(), _PLAN_SECONDS if scaling else _POLL_SECONDS)
            self._asked.clear()
            if self._wanted is None:
                continue
            try:
                await self._ask_once()
            except (ClientError, TimeoutError) as error:
                log.debug("no status from %s: %s", self.address, error)
            except Exception as error:  # noqa: BLE001  # likewise: the job's own image may be of another release
                self._wonder(error)

    def _wonder(self, error: Exception) -> None:
        """Tell, once, of words that are not understood."""
        if repr(error) != self._odd:
            self._odd = repr(error)
            log.exception("what %s says is not understood; it is asked again", self.address)

    async def _ask_once(self) -> None:
        async with asyncio.timeout(2 * CALL_SECONDS):
            status = await asyncio.to_thread(self.client.status)
            plans = await self._changed_plans(status)
        wanted = self._wanted
        self.heard = time.monotonic()
        if wanted is None or set(wanted.nodes) != {node.member.id for node in status.nodes}:
            return  # of two moments: who is there changed in between, and the stream's next message is on its way
        report = CoordinatorReport.of(wanted, status, plans)
        if report != self.report:
            self.report = report
            self._wake()

    async def _changed_plans(self, status: pb.StatusReply) -> list[pb.Plan]:
        """Return all plans; they are asked for only where there may be another one."""
        mark = (
            status.term,
            status.configuration.number,
            status.plan.id,
            len(status.withdrawn),
            status.phase == "running",
        )
        if mark != self._plans[0]:
            self._plans = (mark, await asyncio.to_thread(self.client.plans))
        return self._plans[1]
