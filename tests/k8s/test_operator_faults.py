"""One job's fault is that job's: its condition, its event. Others, and the operator, go on."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from k8s.elastic_operator import handlers, pod_creation
from k8s.elastic_operator.api_writes import NotLeader
from k8s.elastic_operator.job_loop import Keeper
from k8s.foundation.api_server import ApiUnavailable
from tests.k8s.played_api import PlayedApi, document, keepers, refusal

UNKNOWN = 'strict decoding error: unknown field "spec.containers[0].imagePullPolcy"'


@asynccontextmanager
async def kept(api, *bodies):
    """Keepers that have been told of these jobs."""
    stop = asyncio.Event()
    found = keepers(api, stop)
    for body in bodies:
        found.job({"type": "ADDED", "object": body})
    try:
        yield found, stop
    finally:
        await found.close()


async def until(ready, seconds=30.0):
    async with asyncio.timeout(seconds):
        while not ready():
            await asyncio.sleep(0.01)


def run(scene):
    asyncio.run(scene())


# ---- whatever breaks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ValueError("no such role"), TypeError("'NoneType'"), KeyError("spec")])
def test_what_breaks_on_one_job_is_its_condition_and_others_are_kept(monkeypatch, error):
    sound = Keeper._once

    async def once(self):
        if self.name == "ns/bad":
            raise error
        return await sound(self)

    monkeypatch.setattr(Keeper, "_once", once)
    api = PlayedApi()

    async def scene():
        async with kept(api, document("bad"), document("good")) as (found, stop):
            await until(lambda: api.condition("bad", "Kept"))
            await until(lambda: len([name for name in api.made if name.startswith("good-")]) == 4)
            assert not stop.is_set()
            assert len(found) == 2

    run(scene)
    status, reason, message = api.condition("bad", "Kept")
    assert (status, reason) == ("False", "Error")
    assert message == f"{type(error).__name__}: {error}"
    assert [event for event in api.events if event[0] == "bad"] == [("bad", "Error", message)]


def test_what_is_written_about_a_fault_does_not_bring_the_next_try_sooner(monkeypatch):
    tries = []

    async def once(self):
        tries.append(self.name)
        self.wake()
        raise ValueError("always")

    monkeypatch.setattr(Keeper, "_once", once)

    async def scene():
        async with kept(PlayedApi(), document("bad")) as (found, _):
            await until(lambda: tries)
            await asyncio.sleep(0.3)
            assert len(tries) == 1
            edited = document("bad")
            edited["metadata"] |= {"generation": 2, "resourceVersion": "9"}
            found.job({"type": "MODIFIED", "object": edited})
            await until(lambda: len(tries) == 2)

    run(scene)


def test_a_keeper_that_dies_all_the_same_is_followed_by_another(monkeypatch):
    monkeypatch.setattr(handlers, "_AGAIN_SECONDS", 0.01)
    lives = []

    async def die(self):
        lives.append(self.name)
        if len(lives) == 1:
            raise RuntimeError("outside of all care")
        await asyncio.Event().wait()

    monkeypatch.setattr(Keeper, "run", die)

    async def scene():
        async with kept(PlayedApi(), document("bad")) as (found, stop):
            await until(lambda: len(lives) == 2)
            assert not stop.is_set()
            assert len(found) == 1

    run(scene)


def test_who_does_not_lead_any_more_stops(monkeypatch):
    async def once(self):
        raise NotLeader("the lease is not ours")

    monkeypatch.setattr(Keeper, "_once", once)

    async def scene():
        async with kept(PlayedApi(), document()) as (_, stop):
            await asyncio.wait_for(stop.wait(), 5)

    run(scene)


# ---- pods are judged before any is made ------------------------------------------------------------------------------


def misspelt(pod, dry_run):
    wrong = "imagePullPolcy" in pod["spec"]["containers"][0]
    return refusal(400, UNKNOWN) if dry_run and wrong else None


def template(**container):
    return {"template": {"spec": {"containers": [{"command": ["python", "x.py"], **container}]}}}


def test_what_the_api_server_has_against_a_template_is_the_jobs_condition_and_nothing_is_made():
    api = PlayedApi(misspelt)
    bad = document("bad", workers=template(imagePullPolcy="Never"))

    async def scene():
        async with kept(api, bad, document("good")) as (found, stop):
            await until(lambda: api.condition("bad", "Accepted")[1:2] == ("InvalidTemplate",))
            await until(lambda: len(api.made) == 4)
            assert not stop.is_set()
            assert all(name.startswith("good-") for name in api.made)
            mended = document("bad", workers=template(imagePullPolicy="Never"))
            mended["metadata"] |= {"generation": 2, "resourceVersion": "99"}
            found.job({"type": "MODIFIED", "object": mended})
            await until(lambda: len([name for name in api.made if name.startswith("bad-")]) == 3)

    run(scene)
    told = [event for event in api.events if event[1] == "InvalidTemplate"]
    assert told == [("bad", "InvalidTemplate", UNKNOWN)]
    assert api.condition("bad", "Accepted")[0] == "True"


def test_a_template_is_judged_as_its_author_wrote_it():
    """A text where a list belongs: added to ours it would be a list of letters."""
    judged = []

    def look(pod, dry_run):
        judged.append(pod["spec"].get("volumes"))

    spec = {"containers": [{"command": ["python", "x.py"]}], "volumes": "notalist"}

    async def scene():
        async with kept(PlayedApi(look), document(workers={"template": {"spec": spec}})):
            await until(lambda: judged)

    run(scene)
    assert judged[0] == "notalist"


def test_a_template_that_no_pod_can_be_made_of_is_the_jobs_condition():
    api = PlayedApi()
    spec = {"containers": [{"command": ["python", "x.py"]}], "volumes": 5}

    async def scene():
        async with kept(api, document("bad", workers={"template": {"spec": spec}})) as (_, stop):
            await until(lambda: api.condition("bad", "Accepted")[1:2] == ("InvalidTemplate",))
            assert not stop.is_set()

    run(scene)
    assert not api.made


@pytest.mark.parametrize(
    ("url", "why"),
    [("s3://no-such", "s3fs"), *((url, "give a path from /") for url in ("saved", "~/saved", "file://saved"))],
)
def test_a_storage_that_pods_cannot_write_to_is_refused_before_anything_is_made(url, why):
    """In a folder of its own working directory each wrote what no other found."""
    api = PlayedApi()

    async def scene():
        async with kept(api, document(checkpoint={"url": url})):
            await until(lambda: api.condition("digits", "Accepted")[1:2] == ("InvalidCheckpoint",))

    run(scene)
    assert why in api.condition("digits", "Accepted")[2]
    assert not api.made


def test_a_webhook_that_cannot_tell_does_not_refuse():
    api = PlayedApi(lambda pod, dry: refusal(400, "admission webhook x does not support dry run") if dry else None)

    async def scene():
        async with kept(api, document()):
            await until(lambda: len(api.made) == 4)

    run(scene)


def test_a_job_that_can_be_lost_is_told_so_once():
    api = PlayedApi()
    bare = document()
    del bare["spec"]["checkpoint"]

    async def scene():
        async with kept(api, bare, document("saved")):
            await until(lambda: len(api.made) == 8)

    run(scene)
    (told,) = [event for event in api.events if event[1] == "NoCheckpoint"]
    assert told[0] == "digits"
    assert "checkpoint.url" in told[2]


# ---- what is told ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [403, 429, 500])
def test_an_event_that_the_api_server_will_not_have_keeps_no_pod_from_being_made(status):
    class Api(PlayedApi):
        async def write_event(self, job, reason, message, warning):
            raise refusal(status, "no more events today")

    api = Api()

    async def scene():
        async with kept(api, document()):
            await until(lambda: len(api.made) == 4)

    run(scene)
    assert api.statuses["digits"]["term"] == 1


BUSY = [
    refusal(409, "on resourcequotas: please apply your changes to the latest version"),
    refusal(429, "too many requests, please try again later"),
    ApiUnavailable("the API server does not answer: timed out"),
]


@pytest.mark.parametrize("error", BUSY)
@pytest.mark.parametrize("status", [{}, {"phase": "Suspended", "trained": True, "term": 1}])
def test_a_job_whose_pods_a_busy_api_server_did_not_make_is_none_that_has_lost_them(monkeypatch, error, status):
    monkeypatch.setattr(pod_creation, "_FIRST_PAUSE", 0.01)
    busy = [error] * 3
    api = PlayedApi(lambda pod, dry_run: busy.pop() if busy and not dry_run else None)
    api.bodies["digits"] = document() | {"status": status}

    async def scene():
        async with kept(api, api.bodies["digits"]):
            await until(lambda: len(api.made) == 4)

    run(scene)
    assert api.made[0] == "digits-coordinator"
    assert [event[1] for event in api.events] == ["Starting"]
    assert api.condition("digits", "Coordinated")[:2] == ("False", "Starting")
    assert api.statuses["digits"]["term"] == status.get("term", 0) + 1
    assert api.statuses["digits"]["created"] == {"workers": 2, "servers": 1}
