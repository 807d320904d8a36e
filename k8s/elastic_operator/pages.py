"""What the operator serves by HTTP: liveness, readiness, metrics."""

from collections.abc import Awaitable, Callable, Sequence

from aiohttp import web

from k8s.elastic_operator.metrics import Metrics

_UNAVAILABLE = 503


async def serve(
    port: int, metrics: Metrics, troubles: Callable[[], Sequence[str]], unready: Callable[[], Awaitable[str]]
) -> web.AppRunner:
    """Serve from now on.

    Args:
        port: on all addresses.
        metrics: for Prometheus.
        troubles: why this process should be started again.
        unready: why it cannot keep jobs now.
    """

    async def healthy(_request: web.Request) -> web.Response:
        return _answer("\n".join(troubles()))

    async def ready(_request: web.Request) -> web.Response:
        return _answer(await unready())

    async def numbers(_request: web.Request) -> web.Response:
        return web.Response(body=metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4"})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthy), web.get("/readyz", ready), web.get("/metrics", numbers)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", port).start()
    return runner


def _answer(trouble: str) -> web.Response:
    return web.Response(text=f"{trouble or 'ok'}\n", status=_UNAVAILABLE if trouble else 200)
