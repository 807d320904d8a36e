"""What the operator's probes are told."""

import asyncio
import urllib.error
import urllib.request

import aiohttp
import pytest

from k8s.elastic_operator import pages
from k8s.elastic_operator.health import (
    ECHO_SECONDS,
    LEASE_SECONDS,
    READY_SECONDS,
    STEP_SECONDS,
    Pulse,
    Readiness,
    troubles,
)
from k8s.elastic_operator.metrics import OperatorMetrics
from k8s.foundation.api_server import ApiUnavailable, error_of


class Hand:
    """A clock that is held in the hand."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Hand()


def body(version):
    return {"metadata": {"resourceVersion": str(version)}}


def test_a_reconciliation_that_stands_still_is_trouble_and_one_that_goes_on_is_not(clock):
    pulse = Pulse(clock)
    for _ in range(3):
        pulse.steps()
        clock.now += STEP_SECONDS
        assert pulse.trouble() == ""
    clock.now += 1
    assert "stands still for 301 s" in pulse.trouble()
    pulse.rests()
    clock.now += 10 * STEP_SECONDS
    assert pulse.trouble() == ""


def test_a_watch_that_does_not_bring_what_was_written_is_trouble(clock):
    pulse = Pulse(clock)
    pulse.hears(body(5))
    pulse.wrote(body(5))  # nothing had changed
    clock.now += 2 * ECHO_SECONDS
    assert pulse.trouble() == ""
    pulse.wrote(body(6))
    clock.now += ECHO_SECONDS
    pulse.wrote(body(9))  # does not make it younger
    assert pulse.trouble() == ""
    clock.now += 1
    assert "121 s ago" in pulse.trouble()
    pulse.hears(body(7))
    assert pulse.trouble() == ""


def test_a_watch_may_be_faster_than_the_answer(clock):
    pulse = Pulse(clock)
    pulse.hears(body(6))
    pulse.wrote(body(6))
    clock.now += 2 * ECHO_SECONDS
    assert pulse.trouble() == ""


def test_troubles_name_the_job_and_the_lease(clock):
    pulse = Pulse(clock)
    assert troubles(LEASE_SECONDS, {"ns/a": pulse}) == []
    pulse.steps()
    clock.now += STEP_SECONDS + 1
    found = troubles(LEASE_SECONDS + 1, {"ns/a": pulse, "ns/b": Pulse(clock)})
    assert [one.split(" ")[0] for one in found] == ["ns/a:", "the"]
    assert "lease" in found[1]


def readiness(clock, answers, idle=False):
    """Which has one answer a question."""

    async def first():
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    return Readiness(first, lambda: idle, clock)


@pytest.mark.parametrize(
    ("answer", "idle", "told"),
    [
        (None, True, ""),
        (body(1), False, ""),
        (body(1), True, "the watch has not brought the jobs yet"),
        (error_of(404, "Not Found"), False, "ElasticJobs cannot be listed: 404 Not Found"),
        (error_of(403, "Forbidden"), False, "ElasticJobs cannot be listed: 403 Forbidden"),
        (ApiUnavailable("the API server does not answer: it is busy"), False, "the API server does not answer"),
    ],
)
def test_ready_is_who_could_keep_the_jobs_that_there_are(clock, answer, idle, told):
    assert asyncio.run(readiness(clock, [answer], idle).trouble()).startswith(told)
    if not told:
        assert asyncio.run(readiness(clock, [answer], idle).trouble()) == ""


def test_probes_ask_the_api_server_now_and_then_only(clock):
    found = readiness(clock, [ApiUnavailable("the API server does not answer"), None])
    assert asyncio.run(found.trouble())
    clock.now += READY_SECONDS
    assert asyncio.run(found.trouble())
    clock.now += 1
    assert asyncio.run(found.trouble()) == ""


def test_a_watch_that_brings_no_job_though_there_are_some_is_trouble(clock):
    """Whose definition was not there when the process began, or was deleted and made again: it never hears of them."""
    found = readiness(clock, [None, body(1), body(1), ApiUnavailable("busy"), body(1), body(2), body(2)], idle=True)

    def told():
        clock.now += ECHO_SECONDS / 2 + 1
        asyncio.run(found.trouble())
        return troubles(0.0, {}, found.deaf)

    deaf = ["its watch has brought no job for 122 s, and there are some"]
    assert [told() for _ in range(6)] == [[], [], deaf, [], [], deaf]
    found._idle = lambda: False
    assert told() == []


def test_pages_say_no_with_the_reason():
    said = {"/healthz": ["ns/a: it stands still"], "/readyz": "no definition"}

    async def unready():
        return said["/readyz"]

    async def ask(path):
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as answer:
            return answer.status, await answer.text()

    async def run():
        nonlocal port
        with pages.serve("127.0.0.1:0", OperatorMetrics(), lambda: said["/healthz"], unready) as port:
            sick = [await ask(path) for path in said]
            said.update({"/healthz": [], "/readyz": ""})
            well = [await ask(path) for path in said]
            numbers = await ask("/metrics")
        return sick, well, numbers

    port = 0
    sick, well, numbers = asyncio.run(run())
    assert sick == [(503, "ns/a: it stands still\n"), (503, "no definition\n")]
    assert well == [(200, "ok\n"), (200, "ok\n")]
    assert "dl2_operator_leader" in numbers[1]


def test_pages_say_when_the_loop_stands_still(monkeypatch):
    monkeypatch.setattr(pages, "_LOOP_SECONDS", 0.01)

    async def run():
        with pages.serve("127.0.0.1:0", OperatorMetrics(), list, None) as port:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=10)  # which blocks the loop
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, error.read().decode()

    assert asyncio.run(run()) == (503, "the operator's loop has not answered for 0.01 s\n")
