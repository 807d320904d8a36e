"""What one document asks for is not taken as done because its number has been written: the work may have failed."""

import asyncio

from k8s.elastic_operator.job.model import FINALIZER
from k8s.elastic_operator.job_loop import Keeper
from k8s.foundation.api_server import ApiUnavailable
from tests.k8s.played_api import PlayedApi, document, keepers, refusal
from tests.k8s.test_operator_faults import UNKNOWN, run
from tests.k8s.test_operator_watch import coordinator


def edited(**status):
    """A job whose document has just been changed."""
    body = document()
    body["metadata"] |= {"finalizers": [FINALIZER], "generation": 2}
    body["status"] = {"observedGeneration": 1, **status}
    return body


def attempted(api, body, times):
    """Let a job's keeper look at it so often."""

    async def scene():
        keeper = Keeper(keepers(api, asyncio.Event())._shared, body)
        for _ in range(times):
            await keeper._attempt()

    run(scene)


def test_a_budget_that_could_not_be_written_is_written_later():
    """Else evictions went by the counts of before until the counts changed again."""
    failures = [ApiUnavailable("timed out")]

    class Api(PlayedApi):
        async def apply(self, manifest):
            if manifest["kind"] == "PodDisruptionBudget" and failures:
                raise failures.pop()
            return await super().apply(manifest)

        async def pods(self, namespace, selector):
            return [coordinator("7", phase="Running")]

    api = Api()

    attempted(api, edited(phase="Running", term=1, trained=True), 4)
    assert sorted(name for name in api.applied if name != "digits-coordinator") == ["digits-servers", "digits-workers"]


def test_a_quota_that_is_used_up_refuses_what_is_there_and_keeps_nobody_from_the_rest():
    """The API server asks the quota before it sees that the name is taken."""
    made = []

    class Api(PlayedApi):
        async def create(self, manifest):
            made.append(manifest["kind"])
            raise refusal(403, f"{manifest['kind']} is forbidden: exceeded quota: few")

        async def pods(self, namespace, selector):
            return [coordinator("7", phase="Running")]

    api = Api()

    attempted(api, edited(phase="Running", term=1, trained=True), 3)
    assert made[0] == "Secret"
    assert made.count("Secret") == 1, "it is prepared"
    assert {"digits-servers", "digits-workers"} <= set(api.applied)


def test_an_edited_template_is_not_taken_unjudged_where_the_api_server_was_away():
    failures = [ApiUnavailable("timed out")]

    def refuse(pod, dry_run):
        return (failures.pop() if failures else refusal(400, UNKNOWN)) if dry_run else None

    accepted = {"type": "Accepted", "status": "True", "reason": "Judged", "lastTransitionTime": "2030-01-01T00:00:00Z"}
    api = PlayedApi(refuse)

    attempted(api, edited(phase="Waiting", conditions=[accepted]), 4)
    assert api.made == []
    assert api.condition("digits", "Accepted") == ("False", "InvalidTemplate", UNKNOWN)
