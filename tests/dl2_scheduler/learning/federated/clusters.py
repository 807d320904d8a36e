"""What clusters tell each other, made up."""

from io import BytesIO

import numpy as np

from dl2_scheduler.learning.federated.knowledge import ClusterKnowledge, encoded, type_digest
from dl2_scheduler.policies.learnt.weights import Weights, shapes

NOW = 1.7e9
IDS = "0123456789abcdef", "fedcba9876543210"
SPEEDS = {"a": {(1, 1): (3, 10.0), (2, 2): (1, 18.0), (4, 2): (2, 25.5)}, "b": {(1, 1): (9, 1.5), (3, 1): (1, 2.0)}}


def network(models, seed=0, hidden=96, rank=32, slot=16):
    """Weights as a cluster of these types has them."""
    sizes = {"base.bias": (hidden,), "rank.bias": (rank,), "slot.bias": (slot,)}
    random = np.random.default_rng(seed)
    wanted = shapes(len(models), sizes)
    return Weights(tuple(models), {name: random.normal(size=of).astype(np.float32) for name, of in wanted.items()})


def knowledge(cluster=IDS[0], speeds=SPEEDS, models=("a", "b"), at=NOW, seed=0):
    """What a cluster tells, of types by their names."""
    told = {type_digest(model): reports for model, reports in speeds.items()}
    return ClusterKnowledge(cluster, at, told, network(tuple(map(type_digest, models)), seed))


def arrays_of(told):
    """The arrays of its file."""
    with np.load(BytesIO(encoded(told))) as found:
        return dict(found)
