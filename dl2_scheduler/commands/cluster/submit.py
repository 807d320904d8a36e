"""This module is `dl2 submit`: it hands a job to a cluster that `dl2 serve` runs."""

from pathlib import Path
from typing import Annotated

import typer

from dl2_scheduler.cluster.document.job_document import ElasticJob, read_document
from dl2_scheduler.cluster.document.yamltext import LONGEST
from dl2_scheduler.cluster.errors import BadInput
from dl2_scheduler.commands.cluster.kube_target import Where
from dl2_scheduler.commands.common import default_folder
from elastic_ps.system.bounded_files import read_text
from elastic_ps.system.option_groups import grouped
from elastic_ps.system.terminal import say


@grouped
def submit(
    document: Annotated[Path, typer.Argument(metavar="FILE", help="An ElasticJob, as YAML.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say when it would start and end.")] = False,
    *,
    where: Where,
) -> None:
    """Submit a job: it gets its first tasks when the next slot begins."""
    try:
        text, here = read_text(document, LONGEST), Path.cwd()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read {document} from the present folder: {error}") from error
    with where.client() as client:
        try:
            notes = () if where.kube else read_document(text).notes
            name = client.check(text, here) if dry_run else client.submit(text, here)
        except BadInput as error:
            raise BadInput(f"{document}: {error}") from error
    if dry_run:
        _forecast(read_document(text), where.folder or default_folder())
        return
    say(f"{name}: submitted; dl2 status {name} shows it")
    for note in notes:
        say(f"note: {note}")


def _forecast(document: ElasticJob, folder: Path) -> None:
    """Say when a job would start and end, and which others would end later.

    What forecasts need is loaded for this alone: it is slow, and submitting needs none of it.
    """
    from dl2_scheduler.commands.cluster.what_if import would_end

    for line in would_end(document, folder):
        say(line)
