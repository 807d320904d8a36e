"""Why a pod does not run, as the API server's object tells: `Pod.of`."""

import pytest

from k8s.elastic_operator.job.pods import Pod
from k8s.elastic_operator.job.reconciliation import ObservedJob
from k8s.elastic_operator.job.status import FAILED, STARTING, ElasticJobStatus
from tests.k8s.operator_cases import decide, job

WAITS = {"name": "main", "restartCount": 0, "state": {"waiting": {"reason": "PodInitializing"}}}
DONE = {"name": "first", "restartCount": 2, "state": {"terminated": {"exitCode": 0, "message": "all is well"}}}
FAILED_ONCE = {"terminated": {"exitCode": 1, "reason": "Error", "message": "no such host\n"}}
BACK_OFF = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}}
NO_IMAGE = {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "dta:1"'}}


@pytest.mark.parametrize(
    ("second", "trouble"),
    [
        ({"state": BACK_OFF, "lastState": FAILED_ONCE}, "init container second: no such host"),
        ({"state": {"running": {}}, "lastState": FAILED_ONCE}, "init container second: no such host"),
        ({"state": {"terminated": {"exitCode": 3, "reason": "Error"}}}, "init container second: exit status 3"),
        ({"state": NO_IMAGE}, 'init container second: ImagePullBackOff: Back-off pulling image "dta:1"'),
        ({"state": WAITS["state"]}, ""),
        ({"state": {"running": {}}}, ""),
    ],
)
def test_an_init_container_that_cannot_start_or_fails_is_the_pods_trouble(second, trouble):
    """The job stayed Starting for ever, without a word."""
    second |= {"name": "second", "restartCount": 5}
    status = {"phase": "Pending", "containerStatuses": [WAITS], "initContainerStatuses": [DONE, second]}
    found = Pod.of({"metadata": {"name": "digits-coordinator"}, "spec": {"nodeName": "node-1"}, "status": status})
    counts = bool(trouble) and "running" not in second["state"]  # else it may get on well this time
    assert (found.trouble, found.container_restarts) == (trouble, 5 if counts else 0)
    done = decide(ObservedJob(ElasticJobStatus(phase=STARTING, term=1), (found,), silent=60.0), job())
    assert (done.status.phase == FAILED) is counts
    assert trouble in done.status.reason
    known = ElasticJobStatus(phase=STARTING, term=2, trained=True)
    done = decide(ObservedJob(known, (found,), silent=60.0), job())
    assert done.status.phase == STARTING, "it may pass, and training would be lost"
    runs = {**status, "phase": "Running", "containerStatuses": [{**WAITS, "state": {"running": {}}}]}
    assert not Pod.of({"metadata": {"name": "digits-coordinator"}, "status": runs}).trouble


def test_an_init_container_that_fails_is_the_pods_trouble_also_behind_a_sidecar_that_failed_once():
    sidecar = {"name": "proxy", "restartCount": 1, "state": {"running": {}}, "lastState": FAILED_ONCE}
    second = {"name": "second", "restartCount": 5, "state": BACK_OFF, "lastState": FAILED_ONCE}
    status = {"phase": "Pending", "containerStatuses": [WAITS], "initContainerStatuses": [sidecar, second]}
    found = Pod.of({"metadata": {"name": "digits-coordinator"}, "spec": {"nodeName": "node-1"}, "status": status})
    assert (found.trouble, found.barred) == ("init container second: no such host", True)
    assert found.container_restarts == 5


@pytest.mark.parametrize(
    ("ended", "trouble"),
    [
        ({"exitCode": 137, "reason": "OOMKilled"}, "OOMKilled"),
        ({"exitCode": 137, "reason": "OOMKilled", "message": "step 3\nstep 4\n"}, "OOMKilled: step 4"),
        ({"exitCode": 1, "reason": "Error", "message": "no data"}, "no data"),
        ({"exitCode": 1, "reason": "Error"}, ""),
    ],
)
def test_what_the_node_says_of_a_containers_end_is_told(ended, trouble):
    main = {"name": "main", "state": {"terminated": ended}}
    assert Pod.of({"metadata": {"name": "c"}, "status": {"containerStatuses": [main]}}).trouble == trouble
