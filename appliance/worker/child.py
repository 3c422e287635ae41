"""The child's programs, which import workloads and torch; entry.py is what is started.

    python -m appliance.worker.entry describe         a Question on stdin, an Answer on stdout
    python -m appliance.worker.entry launch PARENT PIPE   a LaunchSpec on stdin, its records over a
                                                          socket
    python -m appliance.worker.entry rank PARENT      one rank of it, where ranks are not forked
    python -m appliance.worker.entry agent PARENT     one torchrun of several that start such ranks
    python -m appliance.worker.entry serve PARENT     a fork server: see forkserver.py
    python -m appliance.worker.entry idle PARENT      times steps beside a process that waits:
                                                      see idle/hub.py
    python -m appliance.worker.entry idle-role PARENT ROLE   one of its two processes, where they
                                                             are not forked

PARENT is the number of the process that the child dies with, PIPE that of a descriptor which a
launch closes when it has imported; workloads that are named behind it are imported before. A launch
of several ranks has so many processes, which torchrun starts: see torchrun.py.
"""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import os
import re
import resource
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NoReturn

from appliance.errors import ApplianceError
from appliance.evidence.software_fault import class_names
from appliance.ipc import processes
from appliance.ipc.channel import Link
from appliance.ipc.import_watch import ImportWatch
from appliance.ipc.messages import End, Hello, ServeRequest, SetUp
from appliance.ipc.stage_clock import StageClock
from appliance.records.journal import AheadThrough
from appliance.records.json import adapter, to_json
from appliance.records.request import LaunchSpec, Question
from appliance.vendors.registry import make_vendor
from appliance.worker import torchrun
from appliance.worker.describe import describe
from appliance.worker.forkserver import (
    ForkServer,
    claim_stdout,
    compute_probe,
    import_what_exports,
    load,
)
from appliance.worker.idle import hub, roles
from appliance.worker.measure import Progress
from appliance.worker.parameters import one_line
from appliance.worker.prepare import LaunchRefused, float32_products, prepared
from appliance.worker.torch_device import is_lack_of_memory
from appliance.worker.workload_loader import import_to_fork
from workloads.contract.failures import ParameterError, Unsupported
from workloads.parts.distributed import ranks

DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT)
TORCH_CANNOT_WRITE = re.compile(
    r"inline_container\.cc.*unexpected pos|PytorchStreamWriter failed writing", re.DOTALL
)
"""What torch.save raises as a RuntimeError where the file takes no more (caffe2/serialize)."""
LEAST_FREE_BYTES = 2**16
"""A disk with less takes no reference file."""
FAILED_RANK_SECONDS = 1.0
"""How long a rank that failed stays, so that others can report what they saw before it exits."""


@dataclass
class Turn:
    """The begin of a launch whose process was started ahead, waited for once; others' is now.

    One that stands by is `to_report` that it waits, before it does so for the first time.
    """

    is_due: bool
    to_report: bool
    link: Link
    stages: StageClock

    def take(self, *, lacks_memory: bool = False) -> AheadThrough | None:
        """Return when the launch has begun, or with how far its process goes on before that.

        Raises OSError when the runner is gone.
        """
        if not self.is_due:
            return None
        if self.to_report:
            self.to_report = False
            self.link.send(SetUp(lacks_memory=lacks_memory))
        with self.stages.of("wait"):
            word = self.link.wait_for_turn()
            if isinstance(word, str):
                return word
            self.is_due = False
            self.stages.turn(word)
        return None


def launch(spec: LaunchSpec, began_ns: int | None = None) -> NoReturn:
    """Make one launch in this process, send how it ended, and exit.

    `began_ns` is the process's first instruction; None for a fork, which begins here.
    """
    stages = StageClock(spec.ordered_ns, began_ns, is_ahead=bool(spec.ahead))
    progress = Progress(stages=stages)
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the trace is stored, memory is not
    processes.offer_to_the_kernel()
    os.environ[processes.LAUNCH_TOKEN] = spec.token  # a fork has its server's environment
    rank = int(os.environ.get("RANK", "0"))
    link = Link(spec.socket, Hello(launch=spec.launch, rank=rank, token=spec.token))
    turn = Turn(is_due=bool(spec.ahead), to_report=spec.stands_by, link=link, stages=stages)
    end = _ended(spec, link, rank, progress, turn)
    with contextlib.suppress(OSError):
        while turn.take(lacks_memory=end.reason == "out_of_memory"):
            pass  # what failed before the launch began is a result of the launch
        link.send(stages.times(spec.launch, rank))
        link.send(end)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # a full disk takes no more output
            stream.flush()
    if spec.ranks > 1 and end.outcome != "completed":
        time.sleep(FAILED_RANK_SECONDS)
    # Neither exit handlers nor a library's threads have a part in a launch that has ended.
    # A status other than 0 has torchrun end the other ranks; alone, the `End` is enough.
    os._exit(int(spec.ranks > 1 and end.outcome != "completed"))


def _ended(spec: LaunchSpec, link: Link, rank: int, progress: Progress, turn: Turn) -> End:
    try:
        course = prepared(spec, link, rank, progress, turn.take)
        course.run()
        progress.stages.enter("end")
        link.send(float32_products(spec, rank, "after"))
        if spec.ranks > 1:
            ranks.join(course.target).end_together()
    except LaunchRefused as refusal:
        return End(
            outcome=refusal.outcome,
            reason=refusal.reason,
            detail=one_line(refusal),
            stage=progress.stage,
        )
    except ParameterError as error:
        return End(outcome="not_run", reason="bad_parameters", detail=one_line(error))
    except Unsupported as lacking:
        return End(outcome="unsupported", reason="missing_feature", detail=one_line(lacking))
    except BaseException as error:
        with contextlib.suppress(OSError):
            traceback.print_exc()
        end = _failed(error, Path(spec.artifacts_folder))
        return replace(end, exceptions=class_names(error), stage=progress.stage)
    return End(outcome="completed", reason="", detail="")


def _failed(error: BaseException, folder: Path) -> End:
    """The `End` for an exception; what the appliance or its disk lacks is no crash.

    `folder` is where the launch writes. Not every library says why a write failed (numpy does
    not), so the free space is read too.
    """
    detail = one_line(error)
    if isinstance(error, ApplianceError):
        return End(outcome="not_run", reason="artifact", detail=detail)
    cannot_write = isinstance(error, RuntimeError) and TORCH_CANNOT_WRITE.search(str(error))
    if cannot_write or (
        isinstance(error, OSError) and (error.errno in DISK_FULL_ERRORS or _is_full(folder))
    ):
        return End(outcome="interrupted", reason="disk_full", detail=detail)
    if isinstance(error, ranks.Stalled):
        return End(outcome="timed_out", reason="stalled", detail=detail)
    reason = "out_of_memory" if is_lack_of_memory(error) else type(error).__name__
    return End(outcome="crashed", reason=reason, detail=detail)


def _is_full(folder: Path) -> bool:
    try:
        disk = os.statvfs(folder if folder.exists() else folder.parent)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < LEAST_FREE_BYTES


# ------------------------------------------------------------------ the programs


def _describe() -> None:
    question = adapter(Question).validate_json(sys.stdin.buffer.read())
    stdout_descriptor = claim_stdout()
    text = to_json(describe(question))
    with os.fdopen(stdout_descriptor, "wb") as stdout:
        stdout.write(text)


def _launch(imports: int, workloads: Sequence[str], began_ns: int | None) -> NoReturn:
    for name in workloads:
        import_to_fork(name)  # what starts something when it is imported waits for the launch
    os.close(imports)
    text = sys.stdin.buffer.read()
    if not text:
        sys.exit("the runner ended before it named a launch")
    spec = adapter(LaunchSpec).validate_json(text)
    if spec.ranks > 1:
        torchrun.run_launch(spec, text, torchrun.forked_ranks(spec, partial(launch, spec)))
    launch(spec, began_ns)


def _rank(began_ns: int | None) -> NoReturn:
    launch(torchrun.rank_spec(), began_ns)


def _serve() -> None:
    stdout_descriptor = claim_stdout()
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(0, 1)
        if not part:
            return
        line += part
    request = adapter(ServeRequest).validate_json(line)
    imports = ImportWatch()
    load(request.workloads, imports)
    import_what_exports(request.framework, imports)
    if request.ranks > 1:
        imports.imported(torchrun.import_torchrun())
    vendor = make_vendor(request.vendor)
    ForkServer(
        stdout_descriptor,
        probe=lambda: compute_probe(vendor, request.framework),
        begin=launch if request.ranks == 1 else torchrun.fork_ranks_by(launch),
        imports=imports,
        probe_seconds=request.probe_seconds,
    ).serve()


def main(arguments: list[str], began_ns: int | None = None) -> None:
    """Run one of the programs; `began_ns` is the process's first instruction."""
    if len(arguments) > 1:
        processes.die_with(int(arguments[1]))
    programs: Mapping[str, Callable[[], object]] = {
        "describe": _describe,
        "launch": lambda: _launch(int(arguments[2]), arguments[3:], began_ns),
        "rank": partial(_rank, began_ns),
        "agent": torchrun.run_agent,
        "serve": _serve,
        "idle": lambda: hub.serve(claim_stdout()),
        "idle-role": lambda: roles.ROLES[arguments[2]](claim_stdout()),
    }
    programs[arguments[0]]()
