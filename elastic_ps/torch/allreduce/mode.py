"""This module lets processes whose job has no servers train without them."""

from elastic_ps.core.job_mode import JobMode
from elastic_ps.node.settings import mode_of
from elastic_ps.torch.allreduce.job import AllReduceJob
from elastic_ps.torch.allreduce.node import GroupNode
from elastic_ps.torch.allreduce.optimizer import AllReduceOptimizer
from elastic_ps.torch.optimizer import Optimizer
from elastic_ps.worker.script.worker_job import offer_mode


def offer() -> None:
    """Let this process take part in jobs of `--mode all-reduce`, as far as its launcher has started it for one."""
    offer_mode(JobMode.ALL_REDUCE, lambda settings: AllReduceJob(GroupNode.of(settings), settings.cpu_share))
    if mode_of() is JobMode.ALL_REDUCE:
        Optimizer.without_servers = AllReduceOptimizer
