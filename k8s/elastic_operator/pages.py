"""This module serves the operator's pages by HTTP: liveness, readiness, metrics."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from typing import Any

from k8s.elastic_operator.metrics import OperatorMetrics
from k8s.foundation.probes import HttpPage, answering, probe_page

_LOOP_SECONDS = 8.0
"""How long a page waits for the operator's loop, which answers it: less than a probe waits for the page."""


def serve(
    where: str, metrics: OperatorMetrics, troubles: Callable[[], Sequence[str]], unready: Callable[[], Awaitable[str]]
) -> AbstractContextManager[int]:
    """Serve the pages meanwhile, for the loop that this is called in; yield the port.

    Args:
        where: ADDRESS:PORT; port 0: a free one.
        metrics: for Prometheus.
        troubles: return why this process should be started again.
        unready: return why it cannot keep jobs now; "": it can.
    """
    loop = asyncio.get_running_loop()

    async def healthy() -> HttpPage:
        return probe_page("\n".join(troubles()))

    async def ready() -> HttpPage:
        return probe_page(await unready())

    async def numbers() -> HttpPage:
        return HttpPage(metrics.text(), content_type="text/plain; version=0.0.4")

    def on_loop(make: Callable[[], Coroutine[Any, Any, HttpPage]]) -> Callable[[], HttpPage]:
        def page() -> HttpPage:
            answer = asyncio.run_coroutine_threadsafe(make(), loop)
            try:
                return answer.result(_LOOP_SECONDS)
            except TimeoutError:
                answer.cancel()
                return probe_page(f"the operator's loop has not answered for {_LOOP_SECONDS:g} s")

        return page

    return answering(where, {"/healthz": on_loop(healthy), "/readyz": on_loop(ready), "/metrics": on_loop(numbers)})
