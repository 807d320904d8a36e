"""The folder of a run holds its settings, curves, checkpoint and policy.

settings.json     what the run was told, and the versions of what it ran with
imitation.csv     one row an epoch of the bootstrap
learning.csv      one row an update of online learning
tensorboard/      the same, for TensorBoard
checkpoint.pt     all that the next update depends on
policy.npz        the network for inference, without a framework
lock              held by the process that learns in it
"""

import csv
import json
import platform
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.learning.plain import read_plain, write_plain
from dl2_scheduler.live.single_process import alone
from dl2_scheduler.policies.chic.weights import CHIC_FILE
from dl2_scheduler.policies.learnt.dl2 import CHECKPOINT_FILE, POLICY_FILE, SETTINGS_FILE, interrupted, save
from dl2_scheduler.policies.learnt.graph.agent_files import AGENTS_FILE
from dl2_scheduler.policies.learnt.paper.weights import PaperWeights
from dl2_scheduler.policies.learnt.placer_files import PLACER_FILE
from dl2_scheduler.policies.learnt.weights import Weights
from elastic_ps.system.bounded_files import read_text
from elastic_ps.system.terminal import say
from elastic_ps.system.whole_files import write_whole

_OTHER_POLICIES = PLACER_FILE, AGENTS_FILE, CHIC_FILE
_PACKAGES = ("elastic-ps", "numpy", "numba", "scipy", "torch")
_STEP = re.compile("[0-9]{1,18}")


class RunFolder:
    """See the module.

    Args:
        path: of the folder.
    """

    def __init__(self, path: Path):
        self.path = path

    @property
    def checkpoint_file(self) -> Path:
        """The file of the latest checkpoint."""
        return self.path / CHECKPOINT_FILE

    @contextmanager
    def held(self) -> Iterator[None]:
        """Make the folder where there is none, and keep other processes from learning in it meanwhile.

        Raises:
            BadInput: it is no folder, and none can be made there.
            ClusterRefused: another one does.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(f"{self.path} cannot be the folder of a run ({error.strerror}): name another") from error
        refusal = (
            f"another process (dl2 bootstrap, a dl2 learn command, or dl2 serve --learn) learns in {self.path}: "
            "wait until it ends, name another folder, or learn in a copy of this one"
        )
        with alone(self.path / "lock", refusal):
            yield

    def refuse_another(self) -> None:
        """Refuse a folder in which a policy lies, of any kind: it is not to be overwritten. Raises BadInput."""
        for name in (POLICY_FILE, CHECKPOINT_FILE, *_OTHER_POLICIES):
            if (self.path / name).exists():
                raise BadInput(f"{self.path} holds a run ({name}): name another folder")

    @contextmanager
    def best_so_far(self, file: str, name: str) -> Iterator[None]:
        """Say where the best policy so far is, if a person ends the work in this context.

        Args:
            file: of the policy, in the folder.
            name: by which people choose it.
        """
        try:
            yield
        except KeyboardInterrupt:
            if (self.path / file).exists():
                say(f"stopped: the best policy so far is {name}", err=True)
            raise

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Make the folder of a new run; one that was interrupted before it had a policy gives way. Hold it before.

        Raises:
            BadInput: there is a run in it.
        """
        if (self.path / SETTINGS_FILE).exists() and not interrupted(self.path):
            raise BadInput(f"{self.path} holds a run: name another folder, or go on with it by --resume")
        self.refuse_another()
        self.path.mkdir(parents=True, exist_ok=True)
        self.write_settings(settings)

    def write_settings(self, settings: Mapping[str, Any]) -> None:
        """Write the settings of a run that was begun, and the versions of what it runs with."""
        versions = {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}}
        text = json.dumps({"settings": dict(settings), "versions": versions}, indent=2) + "\n"
        write_whole(self.path / SETTINGS_FILE, text.encode(), self.path / "settings.partial")

    def settings(self) -> dict[str, Any]:
        """Return what the run was told.

        Raises:
            BadInput: there is no run.
        """
        try:
            found: dict[str, Any] = json.loads(read_text(self.path / SETTINGS_FILE))["settings"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise BadInput(f"no run in {self.path}: {error}") from error
        if not isinstance(found, dict):
            raise BadInput(f"no run in {self.path}: its settings are no JSON object")
        return found

    def save(self, weights: Weights | PaperWeights, state: Mapping[str, Any]) -> None:
        """Write a checkpoint and its policy, each whole or not at all."""
        self.save_checkpoint(state)
        self.save_policy(weights)

    def save_checkpoint(self, state: Mapping[str, Any]) -> None:
        """Write a checkpoint alone, whole or not at all."""
        write_plain(state, self.checkpoint_file)

    def save_policy(self, weights: Weights | PaperWeights) -> None:
        """Write a policy alone, whole or not at all."""
        save(weights, self.path / POLICY_FILE)

    def checkpoint(self) -> dict[str, Any]:
        """Return the latest, as plain data: see `plain`.

        Raises:
            BadInput: there is none, it is damaged, or reading it could run code.
        """
        if why := interrupted(self.path):
            raise BadInput(f"no checkpoint in {self.path}: {why}")
        return read_plain(self.checkpoint_file)


class Curves:
    """Numbers by step, as CSV and for TensorBoard; a run that goes on from its checkpoint drops what came after that.

    Args:
        folder: of the run.
        name: of the file.
        kept: the last step that stays, where the run goes on.

    Raises:
        BadInput: there is a file of that name that is something else.
    """

    def __init__(self, folder: RunFolder, name: str, kept: int = 0):
        self._file = folder.path / f"{name}.csv"
        self._rows = [row for row in _rows(self._file) if int(row["step"]) <= kept]
        self._writer = SummaryWriter(str(folder.path / "tensorboard" / name), purge_step=kept)

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        """Add the numbers of one step."""
        self._rows.append({"step": str(step), **{name: repr(value) for name, value in numbers.items()}})
        names = list(dict.fromkeys(name for row in self._rows for name in row))
        partial = self._file.with_suffix(".partial")
        with partial.open("w", newline="") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows(self._rows)
        partial.replace(self._file)
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Write what TensorBoard lacks."""
        self._writer.close()


def _rows(file: Path) -> list[dict[str, str]]:
    if not file.exists():
        return []
    try:
        with file.open(newline="") as opened:
            rows = list(csv.DictReader(opened, strict=True))
        if any(None in row or not _STEP.fullmatch(row["step"]) for row in rows):
            raise ValueError("a row has no step, or more than the columns")
    except (OSError, ValueError, KeyError, AttributeError, csv.Error) as error:
        raise BadInput(f"{file} is no curve of a run ({error!r}): move it away, or name another folder") from error
    return rows
