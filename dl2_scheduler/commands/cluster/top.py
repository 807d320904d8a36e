"""This module is `dl2 top`: it shows what the nodes of a cluster carry, and what tasks really use."""

import time

from dl2_scheduler.commands.cluster.forecast_text import clock_interval, end_of
from dl2_scheduler.commands.cluster.jobs import dictionary
from dl2_scheduler.commands.cluster.kube_target import Where
from dl2_scheduler.commands.common import Json, new_table, show, show_json
from elastic_ps.system.option_groups import grouped
from elastic_ps.system.terminal import say

_MIB = 1 << 20
_STEP = 1024.0
_MANY = 100_000
_OF_BYTES = ("memory", "ephemeral-storage", "hugepages-")
"""What resources that are counted in bytes begin with."""


@grouped
def top(*, where: Where, as_json: Json = False) -> None:
    """Show what is claimed of each node, what each task uses, and when its job is expected to end."""
    with where.client() as client:
        found = client.top()
        ends = {} if as_json else {job.name: end_of(job.forecast) for job in client.jobs()}
    if as_json:
        show_json(dictionary(found))
        return
    nodes = new_table(node=False, used=True, of=True, resource=False)
    for node in found.nodes:
        for resource, amount in sorted(node.capacity.items()):
            nodes.add_row(node.name, _text(resource, node.used.get(resource, 0.0)), _text(resource, amount), resource)
    show(nodes)
    tasks, now = new_table(job=False, task=False, node=False, cores=True, limit=True, MiB=True, ends=False), time.time()
    for task in found.tasks:
        limit = f"{task.limit_cores:.2f}" if task.limit_cores else "-"
        memory = f"{task.memory_bytes / _MIB:,.0f}"
        end = clock_interval(ends.get(task.job), now)
        tasks.add_row(task.job, task.task, task.node or "-", f"{task.cores:.2f}", limit, memory, end)
    show(tasks)
    say(f"isolation: {found.isolation}")


def _text(resource: str, amount: float) -> str:
    """Return an amount for people: bytes in binary units, all else as a number."""
    if not resource.startswith(_OF_BYTES):
        return f"{round(amount, 2):,g}" if amount < _MANY else f"{amount:,.0f}"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < _STEP:
            return f"{amount:.4g} {unit}"
        amount /= _STEP
    return f"{amount:,.1f} TiB"
