"""This module names the ways in which `dl2 learn-chic` and `dl2 learn-agents` learn."""

from enum import StrEnum


class LearningWay(StrEnum):
    """A `LearningWay` says how a policy learns."""

    TAUGHT = "taught"
    MENDED = "mended"
    PAPER = "paper"
