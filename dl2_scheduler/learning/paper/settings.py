"""This module has the settings of the paper's learning; the defaults are the published ones (DL2, section 6.2)."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PaperSettings:
    """These settings are those of the reinforcement learning. Each technique of table 2 can be left out.

    Attributes:
        learning_rate: of Adam, of both networks.
        discount: of a slot's reward against the next slot's; between inferences of one slot there is none.
        batch: samples of an update.
        entropy: weight of the mean over all actions of -p log p, as in the published code.
        replay: samples that are kept; 0: an update takes the samples of its slot, all and no others.
        epsilon: probability that a poor state is mended (job-aware exploration); 0: never.
        guided: explore by the published code's rule instead, see `exploration.guide`.
        value_network: False: the moving average of rewards is the baseline instead.
        job_reward: an action's reward is the progress of its own job, not of all jobs (section 6.5).
        late_types: (update, models): from which update on jobs train which models; empty: those of the lessons.
        agents: clusters that learn one policy, in turn, each from its own episodes (A3C, section 6.5).
        checkpoint_every: updates.
        judge_every: updates after which the policy is judged without exploration.
        validation: episodes of each cluster by which it is judged.
    """

    learning_rate: float = 1e-4
    discount: float = 0.9
    batch: int = 256
    entropy: float = 0.1
    replay: int = 8192
    epsilon: float = 0.4
    guided: bool = False
    value_network: bool = True
    job_reward: bool = False
    late_types: tuple[tuple[int, tuple[str, ...]], ...] = ()
    agents: int = 1
    checkpoint_every: int = 2000
    judge_every: int = 1000
    validation: int = 4


PUBLISHED = PaperSettings(discount=0.0, guided=True, judge_every=100)
"""What the published code does otherwise than the paper says: a slot's reward alone counts, and a rule explores."""
