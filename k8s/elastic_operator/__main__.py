"""`python -m k8s.elastic_operator`: keeps every ElasticJob as its document says, while it holds the lease."""

import argparse
import asyncio
import json
import logging
import os
import secrets
import socket
import sys
import time
from pathlib import Path

import kopf
from aiohttp import web
from kubernetes.aio import client

from k8s.elastic_operator.api import Api
from k8s.elastic_operator.handlers import Keepers, registry
from k8s.elastic_operator.keeper import Shared
from k8s.elastic_operator.lease import Lease, connect
from k8s.elastic_operator.manifests import Defaults
from k8s.elastic_operator.metrics import Metrics

log = logging.getLogger("k8s.elastic_operator")

_LEAST_KEY = 16
_PROGRESS_SECONDS = 5.0
_WRITES_PER_SECOND = 10.0


def main(arguments: list[str] | None = None) -> int:
    """Run until SIGTERM. Returns the exit status: 0, 1 where the lease was lost, 2 where it cannot start."""
    options = _parser().parse_args(arguments)
    _log_as_json()
    try:
        key = options.key_file.read_bytes().strip()
    except OSError as error:
        sys.stderr.write(f"operator: cannot read --key-file: {error}\n")
        return 2
    if len(key) < _LEAST_KEY:
        sys.stderr.write(f"operator: the key in {options.key_file} has {len(key)} bytes: give at least {_LEAST_KEY}\n")
        return 2
    return asyncio.run(_serve(options, key))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m k8s.elastic_operator", description=__doc__)
    add = parser.add_argument
    add("--namespace", action="append", default=[], help="whose jobs to keep; again for more (all)")
    add("--key-file", type=Path, required=True, help="secret that the jobs' tokens are made from")
    add("--lease-namespace", default=os.environ.get("POD_NAMESPACE", "default"), help="of the lease (%(default)s)")
    add("--lease-name", default="dl2-operator", help="whoever holds it acts (%(default)s)")
    add("--image", default="", help="of pods whose template names none")
    add("--scheduler", default="dl2", help="of pods whose template names none (%(default)s)")
    add("--port", type=int, default=8080, help="of /healthz, /readyz and /metrics; 0: none (%(default)s)")
    return parser


class _JsonLines(logging.Formatter):
    """One object a line."""

    def format(self, record: logging.LogRecord) -> str:
        found = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{record.msecs:03.0f}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if (job := getattr(record, "job", None)) is not None:
            found["job"] = job
        if record.exc_info:
            found["exception"] = self.formatException(record.exc_info)
        return json.dumps(found)


def _log_as_json() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("kopf").setLevel(logging.WARNING)


async def _serve(options: argparse.Namespace, key: bytes) -> int:
    """Wait for the lease, then keep jobs until a signal or the lease's loss."""
    metrics, stop = Metrics(), asyncio.Event()
    identity = f"{socket.gethostname()}-{secrets.token_hex(4)}"
    loop = asyncio.get_running_loop()

    def lost() -> None:
        loop.call_soon_threadsafe(stop.set)

    lease = Lease(options.lease_name, options.lease_namespace, identity, lost)
    pages = await _pages(options.port, metrics)
    try:
        await connect()
        async with client.ApiClient() as connection:
            await lease.acquire()
            log.info("%s leads", identity)
            metrics.leader.set(1)
            await _keep(options, key, Api(connection, lease.held), metrics, stop)
        if stop.is_set():
            log.error("the lease is lost, or a keeper died: another process takes over")
        return 1 if stop.is_set() else 0
    finally:
        await asyncio.to_thread(lease.release)
        if pages is not None:
            await pages.cleanup()


async def _keep(options: argparse.Namespace, key: bytes, api: Api, metrics: Metrics, stop: asyncio.Event) -> None:
    keepers: Keepers
    shared = Shared(
        api=api,
        key=key,
        defaults=Defaults(image=options.image, scheduler=options.scheduler),
        metrics=metrics,
        progress_seconds=lambda: max(_PROGRESS_SECONDS, len(keepers) / _WRITES_PER_SECOND),
    )
    keepers = Keepers(shared, stop)
    metrics.count_calls(lambda: api.calls)
    try:
        await kopf.operator(
            registry=registry(keepers),
            standalone=True,
            clusterwide=not options.namespace,
            namespaces=options.namespace,
            stop_flag=stop,
        )
    finally:
        await keepers.close()


async def _pages(port: int, metrics: Metrics) -> web.AppRunner | None:
    """Liveness, readiness, metrics. A process that waits for the lease is ready too: it takes over when it must."""
    if not port:
        return None

    async def healthy(_request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def numbers(_request: web.Request) -> web.Response:
        return web.Response(body=metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4"})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthy), web.get("/readyz", healthy), web.get("/metrics", numbers)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "0.0.0.0", port).start()
    return runner


if __name__ == "__main__":
    sys.exit(main())
