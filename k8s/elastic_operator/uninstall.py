"""`python -m k8s.elastic_operator.uninstall`: before the chart goes, jobs end in order, while there is an operator."""

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable
from typing import Any

from kubernetes.aio import client, config

from k8s.elastic_operator.job.model import GROUP, PLURAL, VERSION, Body

PATIENCE = 240.0
_NOT_FOUND = 404


def main(arguments: list[str] | None = None) -> int:
    """Delete all jobs and wait for their end. Returns 0, or 1 where some have not ended in time."""
    parser = argparse.ArgumentParser(prog="python -m k8s.elastic_operator.uninstall", description=__doc__)
    parser.add_argument("--namespace", action="append", default=[], help="whose jobs end; again for more (all)")
    parser.add_argument("--delete-secret", metavar="NAMESPACE/NAME", default="", help="the operator's key, at the end")
    options = parser.parse_args(arguments)
    return asyncio.run(_uninstall(options.namespace, options.delete_secret))


async def _uninstall(namespaces: list[str], secret: str) -> int:
    config.load_incluster_config()
    async with client.ApiClient() as api:
        custom = client.CustomObjectsApi(api)
        deadline = time.monotonic() + PATIENCE
        while jobs := await _jobs(custom, namespaces):
            names = [(job["metadata"]["namespace"], job["metadata"]["name"]) for job in jobs]
            if time.monotonic() > deadline:
                sys.stderr.write(f"jobs that have not ended: {', '.join('/'.join(name) for name in names)}\n")
                return 1
            for job, (where, name) in zip(jobs, names, strict=True):
                if "deletionTimestamp" not in job["metadata"]:
                    await _unless_gone(custom.delete_namespaced_custom_object(GROUP, VERSION, where, PLURAL, name))
            await asyncio.sleep(1.0)
        if secret:
            namespace, _, name = secret.partition("/")
            await _unless_gone(client.CoreV1Api(api).delete_namespaced_secret(name, namespace))
    return 0


async def _jobs(custom: client.CustomObjectsApi, namespaces: list[str]) -> list[Body]:
    listed: Any = await custom.list_cluster_custom_object(GROUP, VERSION, PLURAL)
    found: list[Body] = listed["items"]
    return [job for job in found if not namespaces or job["metadata"]["namespace"] in namespaces]


async def _unless_gone(call: Awaitable[object]) -> None:
    try:
        await call
    except client.ApiException as error:
        if error.status != _NOT_FOUND:
            raise


if __name__ == "__main__":
    sys.exit(main())
