"""`GroupCollectives` are the operations of the group in force that the script's thread waits for."""

import logging
from collections.abc import Callable
from typing import Any

from elastic_ps.core.configuration import NodeId
from elastic_ps.core.errors import JobEnded
from elastic_ps.torch.allreduce.group import Collective, WorkerGroup, why_failed
from elastic_ps.torch.allreduce.node import GroupNode

log = logging.getLogger(__name__)

_MOST_REGROUPS = 3
"""So often in a row members meet again without a step in between: what fails then does so whoever meets."""


class GroupChanged(Exception):
    """The group does not count any more, or has failed: another configuration is in force, or will be."""


class GroupCollectives:
    """`GroupCollectives` are the operations of the group in force that the script's thread waits for.

    Args:
        node: this worker.
        left: called where one is left behind that has failed or may never end.
    """

    def __init__(self, node: GroupNode, left: Callable[[], None]):
        self._node = node
        self._left = left
        self._regroups = 0  # since the last step

    def group(self, generation: int) -> WorkerGroup:
        """Return the group in force.

        It is being built yet where a coordinator without a journal has everybody adopt what they hold prepared.

        Raises:
            GroupChanged: another configuration came into force.
        """
        node = self._node
        node.wait(lambda: node.generation != generation or node.has_group(node.standing.config_id), self._lacking)
        with node.changed:
            if node.generation != generation:
                raise GroupChanged("another configuration is in force")
            return node.group

    def run(self, group: WorkerGroup, generation: int, body: Callable[[], Any]) -> Any:
        """Run a collective; a result that has come counts, whatever has changed meanwhile.

        What `body` uses is left to it, or does not change: where this thread goes on before it has ended, it may yet
        end at other members.

        Args:
            group: of the members.
            generation: in which it is in force.
            body: calls the group's operations, on the group's thread.

        Raises:
            GroupChanged: it has failed, or another configuration came into force before it ended.
        """
        return self.wait(group.submit(body), generation)

    def wait(self, collective: Collective, generation: int) -> Any:
        """Wait for a collective; see `run`."""
        node = self._node
        node.progress.exchanging = True
        try:
            node.wait(lambda: collective.done or node.generation != generation, self._lacking)
        except BaseException as error:  # a signal's handler raised it, as Ctrl-C's does: others may have the result
            node.end(JobEnded(f"the script was interrupted in a step of all workers ({type(error).__name__})", 1))
            raise
        finally:
            node.progress.exchanging = False
        if not collective.done or collective.error is not None:
            self._left()
        if not collective.done:
            raise GroupChanged("another configuration is in force")
        if isinstance(collective.error, RuntimeError):
            raise GroupChanged(why_failed(collective.error))
        if collective.error is not None:
            raise collective.error
        return collective.value

    def stepped(self) -> None:
        """Take note that the group in force has made a step."""
        self._regroups = 0

    def wait_for_news(self, generation: int, why: str) -> None:
        """Wait until the members of a group that has failed have met again, or another configuration is in force.

        Args:
            generation: in which it was in force.
            why: it has failed, for people.

        Raises:
            JobEnded: neither has come in time; members give up one after the other, so that the others can go on.
        """
        node = self._node
        with node.changed:
            failed = node.group if node.generation == generation and node.is_member else None
        if failed is not None and self._regroups < _MOST_REGROUPS:
            self._regroups += 1
            log.info("the group of configuration %s has failed: %s", failed.number, why)
            node.regroup(failed)
        behind = len(node.configuration.workers) - 1 - node.configuration.ranks.get(node.session.node, 0)
        if node.waits_in_vain(lambda: node.generation != generation, 1 + behind):
            raise JobEnded(f"the workers' group has failed, and nobody is known to be gone: {why}", 1)
        with node.changed:
            node.check()

    # ---- inside ------------------------------------------------------------------------------------------------------

    def _lacking(self) -> dict[NodeId, str]:
        """Return for whom the script's thread waits: gloo does not say who has not come."""
        node = self._node
        others = [worker.id for worker in node.configuration.workers if worker.id != node.session.node]
        return dict.fromkeys(others, f"its part of the step after version {node.held}")
