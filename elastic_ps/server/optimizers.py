"""This is where rules of earlier releases find their base class: `class Mine(elastic_ps.server.optimizers.Rule)`."""

from elastic_ps.optimizers import Rule

__all__ = ["Rule"]
