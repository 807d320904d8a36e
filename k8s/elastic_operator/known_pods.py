"""This module knows the pods of one job, as a watch tells of each and a list, now and then, of all."""

from collections.abc import Awaitable, Callable, Iterable

from k8s.elastic_operator.health import version
from k8s.elastic_operator.job.model import Body


class KnownPods:
    """A `KnownPods` has the pods of one job's name as they were last told.

    Attributes:
        bodies: the objects, by name.
    """

    def __init__(self) -> None:
        self.bodies: dict[str, Body] = {}
        self._gone: dict[str, int] = {}  # since all were listed: the version of a pod's end, by its name
        self._meanwhile: list[tuple[Body, bool]] | None = None  # while all are listed: what the watch has told since

    def changed(self, body: Body, gone: bool) -> None:
        """Take in a pod, as a watch brings it; another of its name may be there already."""
        if self._meanwhile is not None:
            self._meanwhile.append((body, gone))
        name = body["metadata"]["name"]
        if name in self.bodies and version(body) < version(self.bodies[name]):
            return
        if version(body) < self._gone.get(name, 0):
            return
        if gone:
            self.bodies.pop(name, None)
            self._gone[name] = version(body)
        else:
            self.bodies[name] = body

    def made(self, body: Body) -> None:
        """Take in a pod that was made here; its watch may be later, as that of an earlier one of its name, or over."""
        self.changed(body, gone=False)

    async def list(self, ask: Callable[[], Awaitable[Iterable[Body]]]) -> None:
        """Take in all pods that there are: others are gone. What a watch tells while they are asked for may be newer.

        Args:
            ask: returns them.
        """
        self._meanwhile = []
        try:
            listed = await ask()
        finally:
            news, self._meanwhile = self._meanwhile, None
        self.bodies, self._gone = {body["metadata"]["name"]: body for body in listed}, {}
        for body, gone in news:
            self.changed(body, gone)
