"""A fitted model of speeds for tests, without fitting: its numbers are drawn."""

import numpy as np

from dl2_scheduler.cluster.hardware.interference import LoadInterference, LoadPoint
from dl2_scheduler.cluster.hardware.profiles import HARMONY_MODELS, PUBLISHED
from dl2_scheduler.policies.learnt.graph.agent_files import agent_shapes
from dl2_scheduler.policies.learnt.graph.agents import GraphAgents
from dl2_scheduler.policies.learnt.pooled_network import speed_shapes
from dl2_scheduler.policies.learnt.pooled_speed import PooledSpeed, base_speeds
from dl2_scheduler.policies.placement.speed_model import SpeedModel

PROFILES = {model: PUBLISHED[model] for model in HARMONY_MODELS}
MODELS = tuple(sorted(PROFILES))
_SIZES = {"task.0.bias": (8,), "job.0.bias": (8,), "kind.weight": (12, 4)}


def drawn_speeds(seed: int = 0) -> PooledSpeed:
    rng = np.random.default_rng(seed)
    shapes = speed_shapes(len(MODELS), _SIZES)
    arrays = {name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}
    return PooledSpeed(arrays, base_speeds(PROFILES))


def drawn_model(seed: int = 0) -> SpeedModel:
    points = {m: [LoadPoint(cpu, mbps, 0.1 * cpu) for cpu in range(5) for mbps in (0.0, 9.0, 70.0)] for m in MODELS}
    interference = LoadInterference.fitted(PROFILES, points, quadratic=True)
    return SpeedModel(MODELS, PROFILES, drawn_speeds(seed), interference)


def drawn_agents(seed: int = 0) -> GraphAgents:
    rng = np.random.default_rng(seed)
    shapes = agent_shapes(len(MODELS), {"tell.bias": (8,), "hidden.bias": (8,)})
    return GraphAgents({name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()})
