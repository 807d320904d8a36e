"""This module holds what learning of Chic can be told: the paper's way, mended, and taught by a planner first."""

from dataclasses import dataclass, replace

from dl2_scheduler.policies.chic.phase import Fines

_FINES = Fines(absent=5.0, half=1.0)


@dataclass(frozen=True)
class ChicSettings:
    """These are the settings of one learning run; the defaults are the paper's, or our reading where it is silent.

    Attributes:
        visible: I, the jobs that the network sees.
        pairs: Chic-Pair.
        hidden: units of the three hidden layers.
        dropout: after the first, while it is fitted.
        until_no_gain: a phase ends where no job gets faster by one more task, by the true speeds.
        void_ends: the network may end a phase by void; False: void is left to the conditions.
        present_only: actions for jobs that are not there are masked; False: they cost a fine.
        sampled: the policy that was learnt draws its actions.
        episodes: N, by the policy; one more is played at random.
        sequences: of an iteration, on each of which as many episodes are played and ranked beside each other; 0: every
            episode draws its own, and all are ranked together, as in the paper.
        elite: rho, the part of episodes that is fitted.
        learning_rate: of Adam.
        passes: over the elite's decisions.
        batch: decisions.
        smoothing: alpha, by which the fitted weights replace the old ones.
        iterations: K.
        judge_every: iterations.
        fines: p1 and p2.
        lessons: passes over a planner's decisions before; 0: learning begins with random weights.
        lesson_rate: of Adam in them, at their start.
    """

    visible: int = 3
    pairs: bool = False
    hidden: tuple[int, int, int] = (64, 32, 4)
    dropout: float = 0.5
    until_no_gain: bool = True
    void_ends: bool = False
    present_only: bool = False
    sampled: bool = True
    episodes: int = 35
    sequences: int = 0
    elite: float = 0.3
    learning_rate: float = 0.01
    passes: int = 4
    batch: int = 256
    smoothing: float = 1.0
    iterations: int = 100
    judge_every: int = 2
    fines: Fines = _FINES
    lessons: int = 0
    lesson_rate: float = 0.005


PAPER = ChicSettings()
"""Section 5's, as far as it says."""

MENDED = replace(
    PAPER,
    hidden=(64, 64, 32),
    dropout=0.0,
    present_only=True,
    episodes=71,
    sequences=3,
    elite=0.2,
    learning_rate=0.003,
    passes=3,
)
"""Episodes are ranked beside others of the same sequence, and the network has no neck of four units."""

TAUGHT = replace(
    MENDED,
    visible=8,
    until_no_gain=False,
    void_ends=True,
    sampled=False,
    sequences=6,
    learning_rate=0.0005,
    passes=1,
    iterations=10,
    lessons=10,
)
"""A planner's decisions first; what is learnt needs no speeds when it decides."""
