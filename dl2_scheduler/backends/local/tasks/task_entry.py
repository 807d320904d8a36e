"""This program makes itself a task of a job: `python task_entry.py FILE ROLE COMMAND...`.

FILE says, for each role, what its tasks' environment has beside what it inherits, and which control group they are in;
none of it is on the command line, which every user of the machine can read. The group is entered before the command
begins. Where that cannot be, the task says so and runs without a limit: `dl2 top` shows which do.

This file is run by its path, isolated: it imports nothing but the standard library.
"""

import errno
import json
import os
import sys
from pathlib import Path


def enter(group: Path, limits: dict[str, str]) -> None:
    """Make a control group, limit it, and move this process into it.

    Args:
        group: folder of the group.
        limits: text by the name of a file in it.

    Raises:
        OSError: the kernel does not let us.
    """
    while True:
        group.mkdir(exist_ok=True)
        try:
            for name, text in limits.items():
                (group / name).write_text(text)
            (group / "cgroup.procs").write_text(str(os.getpid()))
        except OSError as error:
            removed = error.errno in (errno.ENOENT, errno.ENODEV)  # by the cluster just now, as it was empty
            if not (removed and group.parent.exists()):
                raise
        else:
            return


def main(arguments: list[str]) -> None:
    """Run the program; see the module."""
    path, role, *command = arguments
    task = json.loads(Path(path).read_text())[role]
    if task["group"]:
        try:
            enter(Path(f"{task['group']}.{role}.{os.getpid()}"), task["limits"])
        except OSError as error:
            print(f"dl2: this {role} runs without a limit: {error}", file=sys.stderr, flush=True)
    os.execvpe(command[0], command, {**os.environ, **task["environment"]})


if __name__ == "__main__":
    main(sys.argv[1:])
