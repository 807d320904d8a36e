"""What a watch brings while the operator asks or writes is not lost on what that answers."""

import asyncio

from k8s.elastic_operator.job_loop import Keeper
from k8s.foundation.names import ROLE_LABEL
from tests.k8s.played_api import PlayedApi, document, keepers
from tests.k8s.test_operator_faults import run


def coordinator(version, **status):
    owner = {"uid": document()["metadata"]["uid"]}
    meta = {"name": "digits-coordinator", "namespace": "ns", "uid": "c", "labels": {ROLE_LABEL: "coordinator"}}
    return {
        "metadata": {**meta, "resourceVersion": version, "ownerReferences": [owner]},
        "spec": {},
        "status": status,
    }


def test_what_a_watch_tells_of_a_pod_while_all_are_listed_is_newer_than_the_list():
    """Nothing more may come of that pod: the coordinator that runs by now would be asked for nothing."""
    told = []

    class Api(PlayedApi):
        async def pods(self, namespace, selector):
            listed = [coordinator("7", phase="Pending")]
            for body, gone in told:
                keeper.pod_changed(body, gone)
            return listed

    async def scene():
        nonlocal keeper
        for news, left in (
            ((coordinator("8", phase="Running"), False), [coordinator("8", phase="Running")]),
            ((coordinator("8", phase="Running"), True), []),
            ((coordinator("6", phase="Pending"), False), [coordinator("7", phase="Pending")]),
        ):
            told[:] = [news]
            keeper = Keeper(keepers(Api(), asyncio.Event())._shared, document())
            await keeper._once()
            assert [body for body in keeper.pods.bodies.values() if body["metadata"]["uid"] == "c"] == left

    keeper = None
    run(scene)
