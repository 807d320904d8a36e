"""This module says how a job's tasks begin: through `task_entry`, by a file that says what each role has."""

import json
import logging
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from dl2_scheduler.backends.local.runtime import TaskShape
from dl2_scheduler.backends.local.tasks import task_entry
from dl2_scheduler.backends.local.tasks.isolation import Isolation

log = logging.getLogger(__name__)


class TaskFiles:
    """`TaskFiles` are the files by which tasks begin, of all jobs of a cluster.

    Args:
        folder: the folder of the files.
        isolation: keeps tasks to their share.
        cores: the cores of the machine.
        slots: the slots of all virtual nodes: a slot is as large a part of the cores.
    """

    def __init__(self, folder: Path, isolation: Isolation, cores: float, slots: float):
        self.isolation = isolation
        self._folder = folder
        self._cores = cores
        self._slots = slots
        self._written: dict[str, str] = {}
        self._trouble = ""
        folder.mkdir(exist_ok=True, mode=0o700)

    def wrap(self, shape: TaskShape, role: str) -> str:
        """Return the command that tasks of a role are run through."""
        return shlex.join([sys.executable, "-I", "-S", task_entry.__file__, str(self._path(shape.key)), role])

    def write(self, shape: TaskShape) -> None:
        """Say what a job's tasks have, for those that begin from now on."""
        text = json.dumps({role: self._task(shape, role) for role in shape.slots})
        path = self._path(shape.key)
        if self._written.get(shape.key) == text and path.exists():
            return
        self._folder.mkdir(exist_ok=True, mode=0o700)  # people delete what they do not know
        draft = path.with_suffix(".tmp")
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        draft.replace(path)  # at once or not at all: a task may begin now
        self._written[shape.key] = text

    def tend(self, shapes: Sequence[TaskShape]) -> None:
        """See `JobRuntime.tend`. What the disk does not let it do is told once, and tried again."""
        trouble = ""
        try:
            self._write_all(shapes)
        except OSError as error:
            trouble = f"what tasks have cannot be written down: {error}"
        if trouble and trouble != self._trouble:
            log.warning("%s", trouble)
        self._trouble = trouble
        self.isolation.tend({shape.key: {role: self.share(shape, role) for role in shape.slots} for shape in shapes})

    def _write_all(self, shapes: Sequence[TaskShape]) -> None:
        for shape in shapes:
            self.write(shape)
        active = {shape.key for shape in shapes}
        for path in self._folder.glob("*"):
            if path.stem not in active and not path.is_dir():  # of folders none is ours
                path.unlink(missing_ok=True)
                self._written.pop(path.stem, None)

    def close(self) -> None:
        """Leave nothing behind, where no job is left whose tasks may begin or run."""
        if not any(self._folder.glob("*")):
            self.isolation.close()

    def share(self, shape: TaskShape, role: str) -> float:
        """Return the cores that a task may count on."""
        return self._cores * shape.slots[role] / self._slots

    @property
    def words(self) -> str:
        """Return how tasks are kept to their share, for people."""
        return f"{self.isolation.words}; a slot is {self._cores / self._slots:.3g} of {self._cores:g} cores"

    def _task(self, shape: TaskShape, role: str) -> dict[str, object]:
        confinement = self.isolation.confine(shape.key, role, self.share(shape, role))
        return {
            "group": confinement.group,
            "limits": dict(confinement.limits),
            "environment": {**shape.environment[role], **confinement.environment},
        }

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.json"
