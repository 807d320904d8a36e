"""The operator's program, as it is put together."""

import asyncio
import threading

import pytest

from k8s.elastic_operator import __main__ as program

SECONDS = 5.0
KEY = b"0123456789abcdef"


class Enough(Exception):
    """The test has seen all."""


def test_coordinators_that_stand_still_keep_no_other_job_waiting(monkeypatch):
    """A node's disk that hangs stops all coordinators there: each call to one of them lasts as long as a call may."""
    stuck = threading.Event()

    async def ask(_lease):
        calls = [asyncio.create_task(asyncio.to_thread(stuck.wait, 2 * SECONDS)) for _ in range(100)]
        await asyncio.sleep(0)
        try:
            await asyncio.wait_for(asyncio.to_thread(lambda: None), SECONDS)
        finally:
            stuck.set()
            await asyncio.gather(*calls)
        raise Enough

    monkeypatch.setattr(program, "KubeApi", lambda **_: None)
    monkeypatch.setattr(program, "operator_key", lambda *_, **__: KEY)
    monkeypatch.setattr(program, "_acquired", ask)
    with pytest.raises(Enough):
        asyncio.run(program._serve(program._parser().parse_args(["--port", "0"])))
