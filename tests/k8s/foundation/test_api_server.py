"""Which cluster requests go to."""

import pytest
import yaml

from dl2_scheduler.cluster.errors import BadInput
from k8s.foundation.api_server import KubeApi


def kubeconfig(path, **namespaces):
    """With a context for each, the first of them in use."""
    contexts = [
        {"name": name, "context": {"cluster": "c", "user": "u", "namespace": namespace}}
        for name, namespace in namespaces.items()
    ]
    whole = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": next(iter(namespaces)),
        "contexts": contexts,
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    path.write_text(yaml.safe_dump(whole))
    return path


def test_the_kubeconfig_is_the_one_that_is_named_now(tmp_path, monkeypatch):
    for name in ("one", "two"):
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path / name, first=name, second="other")))
        assert KubeApi().namespace == name
        assert KubeApi("second").namespace == "other"


def test_without_a_kubeconfig_it_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(BadInput, match="set KUBECONFIG, or give a --context"):
        KubeApi()
