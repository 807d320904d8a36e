"""This module is `elasticctl --kube`: it asks a cluster's API server about its jobs, with the user's kubeconfig.

It registers itself as the plug-in `elasticctl.kube`, as elasticctl knows nothing of Kubernetes. Coordinators there have
no address outside the cluster, and refuse to be scaled by anybody but the operator: so counts are written into the
job's document, what is shown is its status, which the operator keeps true, a node is drained by the deletion of its
pod, and what only the coordinator knows is asked in its pod.
"""

import errno
import json
from collections.abc import Mapping
from typing import Annotated, Any, NoReturn

import typer
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from rich import box
from rich.table import Table
from urllib3.exceptions import HTTPError

from dl2_scheduler.cluster.errors import BadInput
from elastic_ps.system.option_checks import CarefulGroup, CommandLine, named
from elastic_ps.system.terminal import Terminal, say
from k8s.foundation.api_server import configure
from k8s.foundation.names import COORDINATOR, GROUP, JOB_LABEL, NODE_LABEL, PLURAL, ROLE_LABEL, VERSION
from k8s.within import JobPod, NotHeardOut

_FAILED, _UNKNOWN_JOB, _UNREACHABLE, _REFUSED = 1, 3, 4, 5  # elasticctl's own
_MANAGER = "elasticctl"
_CALL_SECONDS = 10
_MOST = 256
_ATTEMPTS = 5
_OF_OUTPUT = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT)  # of what this prints to: a reader that has gone, a full disk

JobName = Annotated[str, typer.Argument(metavar="JOB", help="Name of the job.", callback=named)]
Namespace = Annotated[str | None, typer.Option(metavar="NAME", help="Of the job; left out: as the kubeconfig says.")]
Context = Annotated[str | None, typer.Option(metavar="NAME", help="Of the kubeconfig; left out: the present one.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Node = Annotated[
    str,
    typer.Argument(metavar="NODE", help="As the label dl2.scheduler/node of its pod says: w0, s1.", callback=named),
]
Count = Annotated[int | None, typer.Option(min=1, max=_MOST, help="Wanted; left out: as it is.")]


class _Errors(CarefulGroup):
    """An `_Errors` group says what the API server refuses in one line on stderr, with elasticctl's exit status."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except ApiException as error:
            _fail(_message(error), {404: _UNKNOWN_JOB, 0: _UNREACHABLE}.get(error.status, _REFUSED))
        except BadInput as error:
            _fail(str(error), _FAILED)
        except NotHeardOut as error:
            _fail(str(error), _UNREACHABLE)
        except (HTTPError, OSError) as error:
            if isinstance(error, OSError) and error.errno in _OF_OUTPUT:
                raise
            _fail(f"the API server does not answer: {error}", _UNREACHABLE)


app = CommandLine(
    cls=_Errors,
    no_args_is_help=True,
    help="Operate elastic training jobs of a Kubernetes cluster.",
)


@app.command()
def jobs(namespace: Namespace = None, context: Context = None, as_json: Json = False) -> None:
    """List the jobs of a namespace."""
    found = _Jobs(context, namespace).all()
    if as_json:
        say(json.dumps({"jobs": [_summary(job) for job in found]}, indent=2))
        return
    table = _table("name", "phase", "workers", "servers", "epoch", "samples/s", "reason")
    for job in found:
        table.add_row(*(_text(value) for value in _summary(job).values()))
    _print(table)


@app.command()
def status(job: JobName, namespace: Namespace = None, context: Context = None, as_json: Json = False) -> None:
    """Show a job's status, as the operator keeps it."""
    found = _Jobs(context, namespace).one(job)
    told: Mapping[str, Any] = found.get("status") or {}
    if as_json:
        say(json.dumps(told, indent=2))
        return
    names = (
        "phase",
        "reason",
        "workers",
        "servers",
        "epoch",
        "samplesPerSecond",
        "plan",
        "term",
        "restarts",
        "metrics",
    )
    for name in names:
        if told.get(name) not in (None, "", {}):
            say(f"{name:<18}{_text(told[name])}")
    for condition in told.get("conditions") or ():
        words = " ".join(filter(None, (condition["reason"], condition.get("message"))))
        say(f"{condition['type']:<18}{condition['status']}: {words}")


@app.command()
def plans(job: JobName, namespace: Namespace = None, context: Context = None, as_json: Json = False) -> None:
    """Show a job's last plans: their cause, outcome and times."""
    found = (_Jobs(context, namespace).one(job).get("status") or {}).get("plans") or []
    if as_json:
        say(json.dumps({"plans": found}, indent=2))
        return
    table = _table("plan", "phase", "cause", "seconds", "suspension s", "bytes moved", "reason")
    for plan in found:
        keys = ("id", "phase", "cause", "seconds", "suspension", "bytesMoved", "reason")
        table.add_row(*(_text(plan.get(key)) for key in keys))
    _print(table)


@app.command()
def scale(
    job: JobName,
    workers: Count = None,
    servers: Count = None,
    namespace: Namespace = None,
    context: Context = None,
    as_json: Json = False,
) -> None:
    """Change a job's numbers of workers and servers; the operator makes it so, and `status` shows how it goes."""
    if workers is None and servers is None:
        raise typer.BadParameter("say what to change: --workers N, --servers M, or both")
    wanted = {name: {"replicas": count} for name, count in (("workers", workers), ("servers", servers)) if count}
    spec = _Jobs(context, namespace).scale(job, wanted)["spec"]
    counts = {
        name: spec.get(name, {}).get("replicas", spec.get(name, {}).get("min", 1)) for name in ("workers", "servers")
    }
    counts |= {"servers": 0} if spec.get("mode") == "all-reduce" else {}
    beside = f" and {counts['servers']} servers" if counts["servers"] else ""
    _result(as_json, {"job": job, **counts}, f"{job}: it is to have {counts['workers']} workers{beside}")


@app.command()
def drain(
    job: JobName, node: Node, namespace: Namespace = None, context: Context = None, as_json: Json = False
) -> None:
    """Take one node out: its pod is deleted, hands over what it holds, and another one comes in its place."""
    pod = _Jobs(context, namespace).node(job, node)
    pod.delete()
    sentence = f"{job}: {node} drains, and another one comes in the place of {pod.name}"
    _result(as_json, {"job": job, "node": node, "pod": pod.name}, sentence)


@app.command()
def stop(job: JobName, namespace: Namespace = None, context: Context = None, as_json: Json = False) -> None:
    """End a job: its object is deleted; it is saved before where it has a checkpoint.url."""
    _Jobs(context, namespace).delete(job)
    _result(as_json, {"job": job, "stopping": True}, f"{job} is stopping")


@app.command()
def watch(job: JobName, namespace: Namespace = None, context: Context = None, as_json: Json = False) -> None:
    """Follow a job until it ends."""
    _inside(job, ["watch"], namespace, context, as_json)


@app.command()
def checkpoint(
    job: JobName,
    url: Annotated[str, typer.Option(help="Folder, by any fsspec URL; left out: the job's own.")] = "",
    namespace: Namespace = None,
    context: Context = None,
    as_json: Json = False,
) -> None:
    """Save a job while it trains, and wait until the checkpoint is whole."""
    _inside(job, ["checkpoint", *(["--url", url] if url else [])], namespace, context, as_json)


@app.command()
def export(job: JobName, namespace: Namespace = None, context: Context = None) -> None:
    """Say how a job's weights are written to a file: its coordinator's pod has nowhere to put one."""
    _fail(
        f"export writes a file on this machine, and {job} has its checkpoints where its pods reach them: save it by "
        f"`elasticctl --kube checkpoint {job}`, then `elasticctl export --from URL -o FILE` where the URL can be read",
        _REFUSED,
    )


@app.command()
def cancel(job: JobName, namespace: Namespace = None, context: Context = None, as_json: Json = False) -> None:
    """Cancel the plan under way, possible until it is armed; the operator asks again for what the document wants."""
    _inside(job, ["cancel"], namespace, context, as_json)


@app.command()
def evict(
    job: JobName, node: Node, namespace: Namespace = None, context: Context = None, as_json: Json = False
) -> None:
    """Expel a node that does not answer, at once, as if it had died; `drain` takes out one that does."""
    _inside(job, ["evict", node], namespace, context, as_json)


@app.command()
def ledger(job: JobName, namespace: Namespace = None, context: Context = None, as_json: Json = False) -> None:
    """Print every update the servers applied, with the samples in it, one a line."""
    _inside(job, ["ledger"], namespace, context, as_json)


@app.command()
def audit(job: JobName, namespace: Namespace = None, context: Context = None, as_json: Json = False) -> None:
    """Prove from the ledger that every sample of the epochs so far entered every parameter exactly once."""
    _inside(job, ["audit"], namespace, context, as_json)


def _result(as_json: bool, value: Mapping[str, Any], sentence: str) -> None:
    say(json.dumps(value, indent=2) if as_json else sentence)


def _inside(job: str, words: list[str], namespace: str | None, context: str | None, as_json: bool) -> None:
    """Run a command of elasticctl in the pod of the job's coordinator."""
    status = _Jobs(context, namespace).coordinator(job).run([*words, *(["--json"] if as_json else [])])
    if status:
        raise typer.Exit(status)


class _Jobs:
    """A `_Jobs` reads and writes the ElasticJobs of a namespace. Every method raises ApiException.

    Args:
        context: of the kubeconfig; None: the present one.
        namespace: None: as the context says.
    """

    def __init__(self, context: str | None, namespace: str | None):
        settings, usual = configure(context)
        connection = client.ApiClient(settings)
        self._api = client.CustomObjectsApi(connection)
        self._core = client.CoreV1Api(connection)
        self._place = (GROUP, VERSION, namespace or usual, PLURAL)

    def all(self) -> list[dict[str, Any]]:
        """Return all jobs of the namespace, by name."""
        found: Any = self._api.list_namespaced_custom_object(*self._place, _request_timeout=_CALL_SECONDS)
        return list(found["items"])

    def one(self, name: str) -> dict[str, Any]:
        """Return a job by its name."""
        found: Any = self._api.get_namespaced_custom_object(*self._place, name, _request_timeout=_CALL_SECONDS)
        return dict(found)

    def delete(self, name: str) -> None:
        """Delete a job, which ends it."""
        self._api.delete_namespaced_custom_object(*self._place, name, _request_timeout=_CALL_SECONDS)

    def coordinator(self, name: str) -> "JobPod":
        """Return the pod of a job's coordinator."""
        found = self._pods(name, f"{ROLE_LABEL}={COORDINATOR}")
        if not found:
            _fail(f"{name} has no coordinator now: elasticctl --kube status {name} says why", _UNREACHABLE)
        return found[0]

    def node(self, name: str, node: str) -> "JobPod":
        """Return the pod of a job's node."""
        pods = self._pods(name, NODE_LABEL)
        known = {pod.node: pod for pod in pods}
        if node not in known:
            _fail(f"{name} has no node {node}: it has {', '.join(sorted(known)) or 'none'}", _REFUSED)
        return known[node]

    def _pods(self, name: str, more: str) -> list["JobPod"]:
        """Return the pods of a job with such a label; others may carry it too, but were not made for the job."""
        uid, selector = self.one(name)["metadata"]["uid"], f"{JOB_LABEL}={name},{more}"
        found = self._core.list_namespaced_pod(self._place[2], label_selector=selector, _request_timeout=_CALL_SECONDS)
        return [JobPod(self._core, pod) for pod in found.items if uid in _owners(pod)]

    def scale(self, name: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Write other counts; return the job as it is then."""
        for _ in range(_ATTEMPTS):
            found = self.one(name)
            if found["spec"].get("scaling", "Scheduler") == "Scheduler":
                _fail(f"{name} is held by the scheduler; dl2 hold {name} --kube first", _REFUSED)
            version = found["metadata"]["resourceVersion"]
            try:
                written: Any = self._api.patch_namespaced_custom_object(
                    *self._place,
                    name,
                    {"metadata": {"resourceVersion": version}, "spec": dict(wanted)},
                    field_manager=_MANAGER,
                    _request_timeout=_CALL_SECONDS,
                    _content_type="application/merge-patch+json",
                )
            except ApiException as error:
                if error.status != 409:
                    raise
            else:
                return dict(written)
        return _fail(f"others keep changing {name}: try again", _FAILED)


def _owners(pod: client.V1Pod) -> set[str]:
    """Return the uids of the objects that a pod was made for."""
    owners = pod.metadata.owner_references if pod.metadata is not None else None
    return {each.uid for each in owners or ()}


def _summary(job: Mapping[str, Any]) -> dict[str, Any]:
    told: Mapping[str, Any] = job.get("status") or {}
    names = ("phase", "workers", "servers", "epoch", "samplesPerSecond", "reason")
    return {"name": job["metadata"]["name"], **{name: told.get(name) for name in names}}


def _message(error: ApiException) -> str:
    try:
        return str(json.loads(error.body or "")["message"])
    except (TypeError, ValueError, KeyError):
        return str(error.reason)


def _fail(text: str, status: int) -> NoReturn:
    say(f"elasticctl: {text}", err=True)
    raise typer.Exit(status)


def _table(*heads: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for head in heads:
        table.add_column(head)
    return table


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(each)}" for name, each in value.items())
    return "" if value is None else str(value)


def _print(table: Table) -> None:
    Terminal().print(table)


def main() -> None:
    """Run the plug-in `elasticctl.kube`."""
    app(prog_name="elasticctl --kube")
