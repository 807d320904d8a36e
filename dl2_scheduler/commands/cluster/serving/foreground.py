"""This module does what every program does that serves a cluster in the foreground.

It has its folder for itself, and ends in order.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.live.single_process import alone
from elastic_ps.core.errors import ConfigurationError
from elastic_ps.system.private_files import private_file, private_folder
from elastic_ps.system.process import signals

_OWN = (
    *("jobs.sqlite", "decisions.sqlite", "kube.sqlite", "policy.json", "policy.partial", "socket", "lock"),
    *("forecasts.sqlite", "exploration.json", "exploration.partial", "refit.json", "refit.partial", "federation-id"),
    *("logs", "tasks", "checkpoints", "elastic_ps", "cgroup", "refit-first"),
)
"""Names of what programs that serve a cluster put into its folder."""


@contextmanager
def held(folder: Path, private: bool = False) -> Iterator[None]:
    """Keep a folder from being served by anybody else, as long as the context lasts.

    The kernel lets go of it with this process.

    Args:
        folder: is made where there is none.
        private: it and the databases in it become this user's alone: jobs' environments are in them.

    Raises:
        BadInput: the folder cannot be used, or others can read it.
        ClusterRefused: another has it.
    """
    with ExitStack() as stack:
        try:
            if private:
                private_folder(folder, _OWN)
                for file in folder.glob("*.sqlite*"):
                    private_file(file)
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            other = f"another dl2 serve has {folder}: end it first, or give another --folder"
            stack.enter_context(alone(folder / "lock", other))
        except ConfigurationError as error:
            raise BadInput(f"--folder: {error}") from error
        except OSError as error:
            raise BadInput(f"cannot use {folder}: {error.strerror}: give another --folder") from error
        yield


def signals_to(close: Callable[[], None]) -> AbstractContextManager[None]:
    """Let SIGINT, SIGTERM and SIGHUP call `close`, as long as the context lasts.

    What has not ended by the second signal ends at once by it.
    """
    asked = False

    def handle(number: int) -> None:
        nonlocal asked
        if asked:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        asked = True
        close()

    return signals.signals_to(handle)
