"""This module says which cluster a command asks.

It is one of this machine, by its folder, or one of Kubernetes, by the user's kubeconfig.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Union

import typer

from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.commands.common import Folder, default_folder
from dl2_scheduler.live.client import ClusterClient
from elastic_ps.system.extras import missing_package

if TYPE_CHECKING:
    from dl2_scheduler.backends.kube.client import KubeClient

Kube = Annotated[bool, typer.Option("--kube", help="Of a Kubernetes cluster, by your kubeconfig.")]
Namespace = Annotated[
    str | None, typer.Option(metavar="NAME", help="Of the jobs, with --kube; left out: as the kubeconfig says.")
]
Context = Annotated[
    str | None, typer.Option(metavar="NAME", help="Of the kubeconfig, with --kube; left out: the present one.")
]


@dataclass(frozen=True)
class Where:
    """`Where` says which cluster a command asks.

    Attributes:
        folder: the folder of the state of a cluster of this machine; None: the default.
        kube: whether it is a Kubernetes cluster.
        namespace: there; None: as the kubeconfig says.
        context: the context of the kubeconfig; None: the present one.
    """

    folder: Folder = None
    kube: Kube = False
    namespace: Namespace = None
    context: Context = None

    def __post_init__(self) -> None:
        """Refuse what does not go together."""
        if self.kube and self.folder is not None:
            raise BadInput("--folder is of a cluster of this machine: leave it out with --kube")
        if not self.kube and (self.namespace or self.context):
            raise BadInput("--namespace and --context are of a Kubernetes cluster: give --kube too")

    def client(self) -> Union[ClusterClient, "KubeClient"]:
        """Return a client that asks it."""
        if self.kube:
            return kube_client(self.context, self.namespace)
        return ClusterClient(self.folder or default_folder())


def kube_client(context: str | None, namespace: str | None) -> "KubeClient":
    """Return a client that asks a Kubernetes cluster.

    The client's library is loaded for it alone: it is slow, and may not be there.

    Raises:
        BadInput: it is not installed, or there is no such cluster.
    """
    try:
        from dl2_scheduler.backends.kube.client import KubeClient
    except ModuleNotFoundError as error:
        raise BadInput(f"--kube: {missing_package(error) or error}") from error
    return KubeClient.of(context, namespace)
