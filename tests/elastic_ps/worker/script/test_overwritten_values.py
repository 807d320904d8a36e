"""A script does not go on with values that its servers have written over: the job has gone on without its worker."""

import numpy as np
import pytest

from elastic_ps.core.errors import JobEnded
from tests.elastic_ps.waiting import until
from tests.elastic_ps.worker.worker_harness import ONE


@pytest.mark.parametrize(("begun", "ends"), [(3, False), (4, True)])
def test_a_script_does_not_see_what_was_written_over(scripted, begun, ends):
    """Version 2 comes, and when the script reads it a server has begun version `begun`."""
    scripted.samples = 24
    running, mark = scripted.run(), np.zeros(1, np.int64)
    for version in (1, 2):
        for server, blocks in scripted.owned():
            server.await_pushes(version - 1, len(blocks))
        if version == 2:
            mark[0] = begun
            with scripted.node.changed:
                scripted.node.inbox.arrived(2, [], image=np.zeros(0, np.uint8), mark=mark.view(np.uint8))
        for server, blocks in scripted.owned():
            server.answer(version, blocks, ONE)
    if ends:
        until(lambda: scripted.node.version == 2)
        assert not running.ended, "it waits to hear why"
        scripted.node.end(JobEnded("expelled", 1))
        with pytest.raises(SystemExit):
            running.result()
        assert [step for step, _ in scripted.yielded] == [0, 0, 1], "its rehearsal, and two steps"
    else:
        for server, blocks in scripted.owned():
            server.await_pushes(2, len(blocks))
