"""This module offers many simulated clusters as one Gymnasium environment."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import error
from gymnasium.utils.seeding import np_random
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.gym.environment import sequence_of, spaces_of
from dl2_scheduler.gym.episode import EpisodeSettings, GymEpisode
from dl2_scheduler.policies.learnt.features import F32

Actions = NDArray[np.int64]
Flags = NDArray[np.bool_]
_Stepped = tuple[F32, NDArray[np.float64], Flags, Flags, dict[str, Any]]


class ClusterVectorEnv(gymnasium.vector.VectorEnv[F32, Actions, NDArray[Any]]):
    """`ClusterEnv`s that take a decision each in a step, with the numbers of single ones, and less around each step.

    A cluster whose episode has ended begins the next one in the following step, whatever the action (next-step mode).

    Args:
        num_envs: how many.
        render_mode: None: there is nothing to draw.
        settings: see `EpisodeSettings`.

    Raises:
        BadInput: a setting is wrong.
    """

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012  # Gymnasium's

    def __init__(self, num_envs: int = 1, render_mode: None = None, **settings: Any):
        if num_envs < 1:
            raise BadInput(f"num_envs is {num_envs}: give a whole number from 1 on")
        self.num_envs = num_envs
        self.render_mode = render_mode
        self.settings = EpisodeSettings(**settings)
        self.single_observation_space, self.single_action_space = spaces_of(self.settings)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._randoms = [np_random()[0] for _ in range(num_envs)]
        self._episodes: list[GymEpisode] = []
        self._ended = np.zeros(num_envs, dtype=np.bool_)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[F32, dict[str, Any]]:
        """Begin with other sequences of jobs.

        Args:
            seed: of the first cluster, the others' follow; or of each; see `ClusterEnv.reset`.
            options: `sequence`: the number of all clusters' sequence, see there.

        Raises:
            BadInput: there are not as many seeds as clusters, or an option is wrong.
        """
        if seed is None or isinstance(seed, int):
            seeds = [None if seed is None else seed + lane for lane in range(self.num_envs)]
        else:
            seeds = list(seed)
        if len(seeds) != self.num_envs:
            raise BadInput(f"{len(seeds)} seeds for {self.num_envs} clusters: give one for each")
        for lane, own in enumerate(seeds):
            if own is not None:
                self._randoms[lane] = np_random(own)[0]
        self._episodes = [GymEpisode(self.settings, sequence_of(random, options)) for random in self._randoms]
        self._ended[:] = False
        return self._seen()

    def step(self, actions: Actions) -> _Stepped:
        """See the class.

        Args:
            actions: of each cluster, (num_envs,).

        Raises:
            ResetNeeded: no episode has begun.
            InvalidAction: there are no such actions.
        """
        if not self._episodes:
            raise error.ResetNeeded("call reset() first: no episode has begun")
        actions = np.asarray(actions)
        whole = actions.shape == (self.num_envs,) and actions.dtype.kind in "iu"
        if not whole or (actions < 0).any() or (actions >= self.settings.actions).any():
            raise error.InvalidAction(f"give {self.num_envs} whole numbers from 0 to {self.settings.actions - 1}")
        rewards = np.zeros(self.num_envs)
        for lane, action in enumerate(actions.tolist()):
            if self._ended[lane]:
                self._episodes[lane] = GymEpisode(self.settings, sequence_of(self._randoms[lane], None))
            else:
                rewards[lane] = self._episodes[lane].act(action)
        observations, infos = self._seen()
        begun = self._ended  # in this step; an episode that is over from its start tells it in the next
        terminated = np.array([episode.terminated for episode in self._episodes]) & ~begun
        truncated = np.array([episode.truncated for episode in self._episodes]) & ~begun
        self._ended = terminated | truncated
        return observations, rewards, terminated, truncated, infos

    def _seen(self) -> tuple[F32, dict[str, Any]]:
        """Return the rows and the info of all lanes.

        As in Gymnasium, an underscore before a key says for which lanes there is a value.
        """
        rows = np.empty(self.observation_space.shape or (), dtype=np.float32)
        masks = np.empty((self.num_envs, self.settings.actions), dtype=np.int8)
        for lane, episode in enumerate(self._episodes):
            episode.look(rows[lane], masks[lane])
        slots = np.array([episode.cluster.lanes.slot for episode in self._episodes])
        info = {"action_mask": masks, "slot": slots}
        info |= {f"_{key}": np.ones(self.num_envs, dtype=np.bool_) for key in info}
        ended = np.array([episode.terminated for episode in self._episodes])
        if ended.any():
            info["completion"] = np.array([each.completion if each.terminated else 0.0 for each in self._episodes])
            info["_completion"] = ended
        return rows, info
