"""This module names the ways in which a job's workers come to share their updates."""

from enum import StrEnum


class JobMode(StrEnum):
    """A `JobMode` says who updates the parameters: servers, or every worker by the same sum of gradients."""

    PARAMETER_SERVERS = "parameter-servers"
    ALL_REDUCE = "all-reduce"
