"""What the chart's components tell their probes, and their logs."""

import json

import pytest
import yaml

from tests.kube.kube_cluster import IMAGE, ROOT, until


@pytest.fixture
def whole(cluster, release, place, tmp_path):
    """The release, with its scheduler; `--wait` waits until all are ready."""
    part = {"image": IMAGE, "imagePullPolicy": "Never", "python": place.python, "env": place.environment}
    values = {"scheduler": {**part, "enabled": True, "volumes": place.volumes, "volumeMounts": place.mounts}}
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    words = ("upgrade", release.name, ROOT / "k8s" / "chart", "-n", release.namespace, "--reuse-values", "--wait")
    cluster.helm(*words, "--timeout", "240s", "-f", tmp_path / "values.yaml")
    yield release
    cluster.helm(*words, "--timeout", "120s", "--set", "scheduler.enabled=false")


@pytest.mark.parametrize(("component", "port"), [("dl2-operator", 8080), ("dl2-scheduler", 8081)])
def test_each_component_is_asked_whether_it_lives_and_is_ready_and_logs_for_programs(cluster, whole, component, port):
    selector = f"app.kubernetes.io/component={component}"
    (pod,) = cluster.get("pods", "-n", whole.namespace, "-l", selector, "--field-selector=status.phase=Running")[
        "items"
    ]
    (container,) = pod["spec"]["containers"]
    assert {"livenessProbe", "readinessProbe"} <= set(container)
    name = pod["metadata"]["name"]
    where = f"/api/v1/namespaces/{whole.namespace}/pods/{name}:{port}/proxy"
    for page in ("/healthz", "/readyz"):
        assert cluster.kubectl("get", "--raw", where + page).stdout == "ok\n"
    lines = until(
        lambda: cluster.kubectl("-n", whole.namespace, "logs", name).stdout.splitlines(), f"{component} logs", 30
    )
    assert all(json.loads(line)["message"] for line in lines), lines
