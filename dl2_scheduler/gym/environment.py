"""This module offers one simulated cluster as a Gymnasium environment."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import error, spaces

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.gym.episode import SEQUENCES, EpisodeSettings, GymEpisode
from dl2_scheduler.policies.learnt.features import F32


class ClusterEnv(gymnasium.Env[F32, np.int64]):
    """This environment, `dl2/Cluster-v0`, asks for DL2's decisions (section 4.1), one inference a step.

    Observation: J rows, as in `policies.learnt.paper.batched`: (J, types + 5), float32. Actions: 3 j + 0, 1, 2 give the
    job at place j a worker, a server, one of each; 3 J stops. What cannot be done stops too, so that each step gets on.
    Reward: 0 within a slot; at its end the sum over jobs of the part of their epochs that they trained in it
    (equation 1).

    Info: `action_mask`, (3 J + 1,), int8, 1 where an action can be taken; `slot`, the number of the present one; at the
    end of all jobs `completion`, their mean completion time in slots.

    Args:
        render_mode: None: there is nothing to draw.
        settings: see `EpisodeSettings`.

    Raises:
        BadInput: a setting is wrong.
    """

    metadata = {"render_modes": []}  # noqa: RUF012  # Gymnasium's

    def __init__(self, render_mode: None = None, **settings: Any):
        self.render_mode = render_mode
        self.settings = EpisodeSettings(**settings)
        self.observation_space, self.action_space = spaces_of(self.settings)
        self._episode: GymEpisode | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[F32, dict[str, Any]]:
        """Begin with another sequence of jobs.

        Args:
            seed: of the sequences of this and the following resets.
            options: `sequence`: the number of the jobs' sequence, which is drawn otherwise.

        Raises:
            BadInput: an option is unknown, or there is no such sequence.
        """
        super().reset(seed=seed)
        self._episode = GymEpisode(self.settings, sequence_of(self.np_random, options))
        return self._seen(self._episode)

    def step(self, action: np.int64) -> tuple[F32, float, bool, bool, dict[str, Any]]:
        """See the class.

        Raises:
            ResetNeeded: the episode is over, or has not begun.
            InvalidAction: there is no such action.
        """
        episode = self._episode
        if episode is None:
            raise error.ResetNeeded("call reset() first: no episode has begun")
        if not self.action_space.contains(action):
            raise error.InvalidAction(f"action {action!r}: give a whole number from 0 to {self.settings.actions - 1}")
        reward = episode.act(int(action))
        observation, info = self._seen(episode)
        if episode.over:
            self._episode = None
        return observation, reward, episode.terminated, episode.truncated, info

    def _seen(self, episode: GymEpisode) -> tuple[F32, dict[str, Any]]:
        rows = np.empty(self.observation_space.shape or (), dtype=np.float32)
        mask = np.empty(self.settings.actions, dtype=np.int8)
        episode.look(rows, mask)
        info = {"action_mask": mask, "slot": episode.cluster.lanes.slot}
        return rows, {**info, "completion": episode.completion} if episode.terminated else info


def spaces_of(settings: EpisodeSettings) -> tuple[spaces.Space[Any], spaces.Space[np.int64]]:
    """Return the spaces of observations and of actions."""
    high = settings.high
    return spaces.Box(np.zeros_like(high), high, dtype=np.float32), spaces.Discrete(settings.actions)


def sequence_of(random: np.random.Generator, options: dict[str, Any] | None) -> int:
    """Number of the sequence of jobs that a reset is told, or draws. Raises BadInput: it is told something else."""
    given = dict(options or {})
    sequence = given.pop("sequence", None)
    if given:
        raise BadInput(f"unknown options {', '.join(map(repr, given))} of reset: there is 'sequence'")
    if sequence is None:
        return int(random.integers(SEQUENCES))
    if isinstance(sequence, bool) or not isinstance(sequence, int | np.integer):
        raise BadInput(f"sequence {sequence!r}: give a whole number from 0 on")
    return int(sequence)
