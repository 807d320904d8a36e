"""This is where policies of earlier releases find the type of their `room`: now it is `FreeResources`."""

from dl2_scheduler.cluster.free_resources import FreeResources as Room
from dl2_scheduler.cluster.free_resources import NodeRule

__all__ = ["NodeRule", "Room"]
