"""This module renders a coordinator's answers as tables that operators read; `cli` prints what it returns."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from coordinator.ctl.job_folders import LocalJob
from coordinator.ctl.text_columns import (
    SHORT_STEPS,
    bytes_text,
    columns,
    counted,
    ms_text,
    optional,
    protected_percent,
    protection_text,
    styled,
    time_text,
    transports,
)
from elastic_ps.control.channels import address_of
from elastic_ps.control.codec import runs_from_pb
from protos import elastic_pb2 as pb

STEPS = ("registration", "assignment", "migration", "worker update")
_BAR = 5
_LISTED_SUSPENSIONS = 4


def job_table(rows: Iterable[tuple[LocalJob, str, pb.StatusReply | None]]) -> RenderableType:
    """Return jobs with their state and, where the coordinator answered, what it said."""
    table = columns("job", "state", "workers", "servers", "epoch", "samples/s", "started", "coordinator")
    for job, state, status in rows:
        readings = ["-"] * 4
        if status is not None:
            in_force = [node.member.role for node in status.nodes if node.rank >= 0]
            readings = [
                _of_wanted(in_force.count(pb.WORKER), status.wanted_workers),
                _of_wanted(in_force.count(pb.SERVER), status.wanted_servers),
                str(status.epoch),
                optional(status.rate, f"{status.rate:,.0f}"),
            ]
        table.add_row(job.name, styled(state), *readings, time_text(job.started), job.coordinator)
    return table if table.row_count else Text("no job runs; start one: elasticrun --workers 2 --servers 1 train.py")


def status_view(status: pb.StatusReply) -> RenderableType:
    """Return a job's status: what it does, who takes part, how the bytes are spread, the plan under way."""
    parts: list[RenderableType] = [_summary(status)]
    if status.HasField("plan"):
        parts.append(plan_line(status.plan))
    if status.queued:
        parts.append(Text.assemble(("queued  ", "bold"), status.queued))
    parts += [Text.assemble(("waiting  ", "bold yellow"), sentence) for sentence in status.waiting]
    by_rank = sorted(status.nodes, key=lambda node: (node.rank < 0, node.rank, node.member.id))
    workers = [node for node in by_rank if node.member.role == pb.WORKER]
    servers = [node for node in by_rank if node.member.role == pb.SERVER]
    if workers:
        parts += [Text(), _workers(workers)]
    if servers:
        parts += [Text(), _servers(servers)]
    return Group(*parts)


def progress_line(status: pb.StatusReply) -> str:
    """Return a job's progress in one line, for a log."""
    in_force = [node.member.role for node in status.nodes if node.rank >= 0]
    who = f"{counted(in_force.count(pb.WORKER), 'worker')}, {counted(in_force.count(pb.SERVER), 'server')}"
    metrics = "".join(f"  {name} {value:.4g}" for name, value in sorted(_chief_metrics(status).items()))
    line = f"{status.phase}  epoch {status.epoch} {_in_epoch(status)} version {status.version}{metrics}  {who}"
    if status.rate:
        line += f"  {status.rate:,.0f} samples/s"
    if status.HasField("protection"):
        line += f"  protected {protected_percent(status)}%"
    return f"{line}  {plan_line(status.plan).plain}" if status.HasField("plan") else line


def plan_line(plan: pb.Plan) -> Text:
    """Return one plan in one line."""
    line = Text.assemble((f"plan {plan.id}  ", "bold"), styled(plan.phase), f"  {_who(plan)}  ({plan.cause})")
    if plan.missing:
        line.append(f"  {_missing(plan)}")
    if plan.clock:
        line.append(f"  clock {plan.clock}")
    if plan.reason:
        line.append(f"  {plan.reason}")
    return line


def cancelled(reply: pb.CancelReply) -> str:
    """Return which plan is cancelled, and how the job goes on."""
    if reply.queued:
        return f"plan {reply.plan} cancelled; what was queued is next: {reply.queued}"
    servers = f" and {counted(reply.servers, 'server')}" if reply.servers else ""
    return f"plan {reply.plan} cancelled; the job goes on with {counted(reply.workers, 'worker')}{servers}"


def plan_table(plans: Sequence[pb.Plan]) -> RenderableType:
    """Return the plans: four steps, bytes, suspension; below them why a plan was cancelled or fell back."""
    if not plans:
        return Text("no plans yet")
    table = columns("plan", "phase", "nodes", "cause", *SHORT_STEPS, "moved", "suspend")
    for plan in plans:
        steps = [ms_text(step) for step in plan.steps_ms]
        table.add_row(
            str(plan.id),
            styled(plan.phase),
            _who(plan),
            plan.cause,
            *steps,
            *["-"] * (len(STEPS) - len(steps)),
            bytes_text(plan.bytes_moved),
            ms_text(max(plan.suspension_ms.values())) if plan.suspension_ms else "-",
        )
    notes = [Text(f"plan {plan.id}: {note}") for plan in plans for note in _notes(plan)]
    return Group(table, Text(), Text("four steps and the longest suspension of a worker, in ms", "dim"), *notes)


def plan_result(plan: pb.Plan) -> RenderableType:
    """Return a plan that has ended, for the operator who asked for it."""
    if plan.phase != "COMMITTED":
        return plan_line(plan)
    table = columns("step", "ms")
    for name, milliseconds in zip(STEPS, plan.steps_ms, strict=False):
        table.add_row(name, ms_text(milliseconds))
    moved = Text(f"moved {bytes_text(plan.bytes_moved)} ({_mode(plan)}); suspension ms: {_suspension(plan)}")
    return Group(plan_line(plan), Text(), table, Text(), moved)


def dry_run(reply: pb.ScaleReply) -> RenderableType:
    """Return what a scaling would do."""
    table = columns("from", "to", "blocks", "bytes")
    for move in reply.moves:
        table.add_row(move.source, move.target, str(move.blocks), bytes_text(move.bytes))
    blocks = sum(move.blocks for move in reply.moves)
    moves = (
        f"move {counted(blocks, 'block')}, {bytes_text(reply.bytes_to_move)}, in about {reply.seconds_estimated:.1f} s"
    )
    parts: list[RenderableType] = [table, Text()] if reply.moves else []
    would = ", ".join([*_roster_changes(reply), moves])
    return Group(*parts, Text(f"would {would}{_unprotected(reply)}; nothing was changed"))


def accepted(reply: pb.ScaleReply) -> str:
    """Return what has become of a request that was not refused."""
    if reply.queued:
        return "queued behind the plan under way"
    changes = ", ".join(_roster_changes(reply))
    return f"plan {reply.plan} accepted" + (f": {changes}" if changes else "") + _unprotected(reply)


def let_go(reply: pb.ScaleReply) -> str:
    """Return who ends without a plan, as it is in no configuration."""
    return f"{', '.join(reply.leaving)} is let go: it has no part in the job, and ends by itself"


def _roster_changes(reply: pb.ScaleReply) -> list[str]:
    """Return who comes and who goes."""
    joining = ((reply.joining_workers, "worker"), (reply.joining_servers, "server"))
    starts = " and ".join(counted(count, noun) for count, noun in joining if count)
    parts = [f"start {starts}"] if starts else []
    return [*parts, f"take out {' '.join(reply.leaving)}"] if reply.leaving else parts


def _unprotected(reply: pb.ScaleReply) -> str:
    return "; nothing is protected then, as nobody can follow the only server" if reply.unprotects else ""


def launch_lines(lines: Sequence[str]) -> RenderableType:
    """Return commands that the operator must run, one a line and unwrapped so that they can be copied."""
    head = Text("no launcher is attached to this job; start the nodes that join yourself:")
    return Group(head, *(Text(f"    {line}", no_wrap=True, overflow="ignore") for line in lines))


def checkpoint_line(reply: pb.CheckpointReply, data: pb.DataSpec) -> str:
    """Return what has been saved, and what it promises; a number where there is no common version."""
    if is_sync(data):
        return f"saved version {reply.version}, {bytes_text(reply.bytes)}, to {reply.url}"
    promise = "consistent per block only: a batch under way may be in some blocks and not in others"
    return f"saved checkpoint {reply.version}, {bytes_text(reply.bytes)}, to {reply.url}\n{promise}"


def is_sync(data: pb.DataSpec) -> bool:
    """Return whether all workers share each step."""
    return data.consistency in ("", "sync")


def ledger_line(entry: pb.LedgerEntry) -> str:
    """Return one applied update in one line."""
    blocks = ",".join(
        f"{first}-{first + count - 1}" if count > 1 else f"{first}" for first, count in runs_from_pb(entry.runs)
    )
    slices = " ".join(f"{part.worker}[{part.low},{part.high})" for part in entry.slices)
    place = f"epoch {entry.epoch} step {entry.step}.{entry.exchange}"
    line = f"{entry.server}  {entry.term}.{entry.number}  version {entry.version}  {place}  blocks {blocks}  {slices}"
    return line.rstrip() + ("  voided" if entry.voided else "")


def _summary(status: pb.StatusReply) -> RenderableType:
    data = "static: the script draws its own batches, so only servers scale"
    if not _is_declared(status):
        data = "not known yet: no script has declared what it trains on"
    elif status.data.elastic:
        size = f"{status.data.global_batch:,}"
        batch = f"global batch {size}" if is_sync(status.data) else f"each worker's batch {size}"
        data = f"elastic, {status.data.samples:,} samples, {batch}"
    kinds, why = transports(status)
    rows: list[tuple[str, RenderableType]] = [
        ("state", Text.assemble(styled(status.phase), f"  {status.reason}".rstrip())),
        ("progress", f"epoch {status.epoch}, {_in_epoch(status)}, version {status.version}"),
        ("speed", optional(status.rate, f"{status.rate:,.0f} samples/s")),
        ("model", f"{bytes_text(status.bytes)} in {status.blocks} blocks"),
        *([("protected", _protected(status))] if status.HasField("protection") else []),
        ("data", data),
        ("consistency", _consistency(status.data) if _is_declared(status) else "-"),
        ("transport", optional(len(kinds), f"{kinds} ({why})" if why else kinds)),
        ("wanted", f"{counted(status.wanted_workers, 'worker')}, {counted(status.wanted_servers, 'server')}"),
        (
            "configuration",
            f"{status.configuration.term}.{status.configuration.number}, coordinator's term {status.term}",
        ),
    ]
    table = Table.grid(padding=(0, 2))
    table.add_row(Text("job", "bold"), Text(status.job, "bold"))
    for name, value in rows:
        table.add_row(Text(name, "bold"), value)
    return table


def _protected(status: pb.StatusReply) -> Text:
    """Return how much is protected; in colour as long as a server's death could cost something."""
    again = f"; tried again in {status.protection.retry_seconds:.0f} s" if status.protection.retry_seconds else ""
    return Text(f"{protection_text(status)}{again}", "yellow" if status.protection.why else "green")


def _is_declared(status: pb.StatusReply) -> bool:
    """Return whether a script has said what it trains on; until then the coordinator answers with defaults."""
    return status.data.elastic or status.blocks > 0


def _in_epoch(status: pb.StatusReply) -> str:
    return f"step {status.step}" if is_sync(status.data) else f"{counted(status.step, 'batch', 'batches')} done"


def _consistency(data: pb.DataSpec) -> str:
    return f"ssp ({data.staleness})" if data.staleness else data.consistency or "sync"


def _chief_metrics(status: pb.StatusReply) -> Mapping[str, float]:
    chief = [node for node in status.nodes if node.member.role == pb.WORKER and node.rank == 0]
    return chief[0].metrics if chief else {}


def _workers(nodes: Sequence[pb.NodeStatus]) -> RenderableType:
    metrics = sorted({name for node in nodes for name in node.metrics})
    table = columns("worker", "rank", "state", "version", "step ms", "samples/s", *metrics, "lease", "pid")
    for node in nodes:
        table.add_row(
            node.member.id,
            _rank(node),
            styled(node.state),
            str(node.version),
            optional(node.step_seconds, ms_text(node.step_seconds * 1000)),
            optional(node.rate, f"{node.rate:,.0f}"),
            *(f"{node.metrics[name]:.4g}" if name in node.metrics else "-" for name in metrics),
            f"{node.lease_left:.0f}",
            str(node.pid),
        )
    return table


def _servers(nodes: Sequence[pb.NodeStatus]) -> RenderableType:
    table = columns("server", "rank", "state", "version", "bytes", "balance", "lease", "pid", "address")
    members = [node for node in nodes if node.rank >= 0]
    most = max((node.bytes for node in nodes), default=0)
    mean = sum(node.bytes for node in members) / len(members) if members else 0
    for node in nodes:
        share = f"{100 * node.bytes / mean:.0f}%" if mean else "-"
        bar = "█" * round(_BAR * node.bytes / most) if most else ""
        table.add_row(
            node.member.id,
            _rank(node),
            styled(node.state),
            str(node.version),
            bytes_text(node.bytes),
            f"{bar:<{_BAR}} {share:>4}",
            f"{node.lease_left:.0f}",
            str(node.pid),
            address_of(node.member.host, node.member.port),
        )
    return table


def _of_wanted(count: int, wanted: int) -> str:
    return str(count) if count == wanted else f"{count} -> {wanted}"


def _rank(node: pb.NodeStatus) -> str:
    return str(node.rank) if node.rank >= 0 else "-"


def _who(plan: pb.Plan) -> str:
    return " ".join([*(f"+{node}" for node in plan.joined), *(f"-{node}" for node in plan.left)]) or "-"


def _mode(plan: pb.Plan) -> str:
    mode = pb.MigrationMode.Name(plan.mode).lower()
    return f"{mode}, paused for {', '.join(plan.fell_back)}" if plan.fell_back else mode


def _missing(plan: pb.Plan) -> str:
    words = "waiting for" if plan.phase == "REGISTERED" else "without, as they did not come:"
    return f"{words} {', '.join(plan.missing)}"


def _notes(plan: pb.Plan) -> list[str]:
    notes = [plan.reason] if plan.reason else []
    if plan.mode != pb.LIVE or plan.fell_back:
        notes.append(f"blocks moved by {_mode(plan)}")
    if plan.missing:
        notes.append(_missing(plan))
    return notes


def _suspension(plan: pb.Plan) -> str:
    """Return every worker's suspension where they are few, else the median and the worst."""
    by_worker = sorted(plan.suspension_ms.items())
    if not by_worker:
        return "-"
    if len(by_worker) <= _LISTED_SUSPENSIONS:
        return "  ".join(f"{worker} {ms_text(value)}" for worker, value in by_worker)
    worst, value = max(by_worker, key=lambda item: item[1])
    return f"median {ms_text(median(plan.suspension_ms.values()))}  worst {worst} {ms_text(value)}"
