"""A job without servers of one worker, which is this process: its scripts call the adapter as any other's do."""

from contextlib import contextmanager
from unittest.mock import patch
from weakref import WeakSet

import elastic_ps.torch as elastic
from elastic_ps.torch.allreduce.group import Rendezvous
from elastic_ps.torch.allreduce.job import AllReduceJob
from elastic_ps.torch.allreduce.node import GroupNode
from elastic_ps.torch.allreduce.optimizer import AllReduceOptimizer
from tests.elastic_ps.torch.allreduce.group_job import TOKEN
from tests.elastic_ps.torch.allreduce.played_coordinator import Coordinator, DirectSession


@contextmanager
def lone_group():
    """The job of this process."""
    coordinator = Coordinator(1)
    rendezvous = Rendezvous("127.0.0.1", TOKEN)
    node = GroupNode(DirectSession(coordinator, rendezvous.port), rendezvous)
    node.start()
    node.wait(lambda: node.is_member)
    job = AllReduceJob(node)
    with (
        patch("elastic_ps.worker.script.worker_job._current", job),
        patch("elastic_ps.torch.optimizer._made", WeakSet()),
        patch.object(elastic.Optimizer, "without_servers", AllReduceOptimizer),
    ):
        yield job
    node.close(False)
    coordinator.close()
