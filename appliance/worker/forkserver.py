"""The fork server, in the child: it has imported everything, run nothing, and forks launches.

Importing torch and the model libraries takes longer than a small launch. A process that has
imported them and has started no operator may be forked safely; one that has not may hold locks,
threads or a device's context that the fork loses. So the server imports, one workload after the
other, and notes what each import started; then it forks one probe (`probe_fork`), which shows
whether it is healthy. What it forks is in its own session, dies with it, and writes to its own
files.

It is spoken to in JSON lines: `ServeRequest`, then `ForkRequest`s on stdin; `ServerMessage` on
stdout. An `ImportRequest` between two forks has it import more and probe itself again. What the
imported libraries print goes to stderr.
"""

from __future__ import annotations

import gc
import os
import selectors
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import NoReturn

import torch

from appliance.errors import ApplianceError
from appliance.generator import maps
from appliance.ipc import processes
from appliance.ipc.import_watch import ImportWatch, uncollected
from appliance.ipc.messages import ForkRequest, ImportRequest, ServerMessage, ServerRequest
from appliance.ipc.probe_fork import probed
from appliance.records.json import adapter
from appliance.records.request import LaunchSpec
from appliance.records.suite import Framework
from appliance.vendors.base import Vendor
from appliance.worker.workload_loader import import_to_fork
from workloads.parts.inference import exporter

EXPORTING: frozenset[Framework] = frozenset({"onnx"})
"""Frameworks of which each launch, or one of a case, exports a model."""


def claim_stdout() -> int:
    """The real stdout under another number; what is printed from now on goes to stderr."""
    sys.stdout.flush()
    answer = os.dup(1)
    os.dup2(2, 1)
    return answer


def load(workloads: Iterable[str], imports: ImportWatch) -> None:
    """Import the workloads, each noted with what it started, and make what inputs are drawn from.

    Of NumPy alone, which starts nothing for it: each launch would make it again.
    """
    maps.standard_groups()
    for name in workloads:
        import_to_fork(name)
        imports.imported(name)


def import_what_exports(framework: Framework, imports: ImportWatch) -> None:
    """Import and make what each launch that exports would."""
    if framework in EXPORTING:
        with uncollected():
            exporter.prepare_exports(imports.imported)


class ForkServer:
    """Forks launches; `begin` makes one and never returns, `probe` raises when something is off."""

    def __init__(
        self,
        answer: int,
        probe: Callable[[], None],
        begin: Callable[[LaunchSpec], NoReturn],
        imports: ImportWatch,
        probe_seconds: float,
    ) -> None:
        self._answer = answer
        self._probe = probe
        self._begin = begin
        self._imports = imports
        self._probe_seconds = probe_seconds
        self._wake, wake = os.pipe()
        for end in (self._wake, wake):
            os.set_blocking(end, False)
        self._own = (answer, self._wake, wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Send whether the server is healthy, then fork what is requested until stdin closes."""
        self._send(self._probed())
        pending = b""
        with selectors.DefaultSelector() as selector:
            selector.register(0, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fd == self._wake:
                        self._reap()
                        continue
                    part = os.read(0, 2**16)
                    if not part:
                        return
                    *lines, pending = (pending + part).split(b"\n")
                    for line in lines:
                        self._answer_to(adapter(ServerRequest).validate_json(line))

    def _send(self, line: ServerMessage) -> None:
        os.write(self._answer, adapter(ServerMessage).dump_json(line) + b"\n")

    def _reap(self) -> None:
        try:
            while os.read(self._wake, 4096):
                pass
        except BlockingIOError:
            pass
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._send(
                ServerMessage(state="ended", pid=pid, status=os.waitstatus_to_exitcode(status))
            )

    def _answer_to(self, request: ForkRequest | ImportRequest) -> None:
        if isinstance(request, ForkRequest):
            self._start(request)
            return
        self._reap()  # what has ended is not taken for what an import left behind
        load(request.workloads, self._imports)
        self._send(self._probed())

    def _start(self, request: ForkRequest) -> None:
        server = os.getpid()
        pid = os.fork()
        if pid:
            self._send(ServerMessage(state="started", pid=pid))
            return
        try:
            self._become_child(server)
            _redirect(request)
            self._begin(request.launch)
        finally:
            os._exit(70)  # never back into the server's loop

    def _become_child(self, server: int) -> None:
        """Leave everything of the server behind but what it has imported."""
        os.setsid()
        processes.die_with(server)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in self._own:
            os.close(descriptor)

    def _probed(self) -> ServerMessage:
        """Whether a fork works, and if not why."""
        # A collection in a fork would visit what was imported, and copy all of its memory.
        gc.freeze()
        server = os.getpid()

        def compute() -> None:
            self._become_child(server)
            self._probe()

        result = probed(self._imports, compute, self._probe_seconds)
        if not result.reason:
            return ServerMessage(state="ready")
        return ServerMessage(
            state="unhealthy",
            reason=result.reason,
            last_words=result.last_words,
            importers=result.importers,
        )


def _redirect(request: ForkRequest) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    for path, number in ((request.stdout, 1), (request.stderr, 2)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(file, number)
        os.close(file)
    os.close(nothing)


# ------------------------------------------------------------------ what the probe fork computes

SIZE = 512
"""Rows of the matrices: enough work for all threads of the processors."""
OPERATORS, FORMAT = 17, 8
"""Set of operators of ONNX and the version of its format that brought it (onnx, "Versioning"):
old enough for every runtime that the suite takes."""


def compute_probe(vendor: Vendor, framework: Framework) -> None:
    """Multiply matrices by torch and by the framework; raises whatever is wrong.

    By the framework that the launches will use, on the vendor's device: a device's context, a
    thread pool or a lock that importing left behind shows here, by an exception, a crash, a hang or
    a wrong number.
    """
    vendor.prepare()
    _by_torch(vendor)
    if framework in _PROBES:
        _PROBES[framework](vendor)


def _by_torch(vendor: Vendor) -> None:
    ones = torch.ones(SIZE, SIZE, device=vendor.torch_type)
    _require("torch", is_right=bool((ones @ ones == SIZE).all()))


def _by_jax(_: Vendor) -> None:
    """On JAX's default device, which is the vendor's wherever JAX drives it."""
    from jax import numpy as jnp  # noqa: PLC0415 - in this framework's server alone

    ones = jnp.ones((SIZE, SIZE))
    _require("JAX", is_right=bool((ones @ ones == SIZE).all()))


def _by_onnx(vendor: Vendor) -> None:
    import numpy as np  # noqa: PLC0415 - in this framework's server alone
    from onnx import TensorProto, helper  # noqa: PLC0415
    from onnxruntime import InferenceSession  # noqa: PLC0415

    shapes = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [SIZE, SIZE]) for name in "xy"]
    node = helper.make_node("MatMul", ["x", "x"], ["y"])
    graph = helper.make_graph([node], "probe", shapes[:1], shapes[1:])
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPERATORS)], ir_version=FORMAT
    )
    session = InferenceSession(model.SerializeToString(), providers=list(vendor.onnx_providers()))
    (product,) = session.run(None, {"x": np.ones((SIZE, SIZE), np.float32)})
    _require("ONNX Runtime", is_right=bool((product == SIZE).all()))


_PROBES: Mapping[Framework, Callable[[Vendor], None]] = {"jax": _by_jax, "onnx": _by_onnx}


def _require(name: str, *, is_right: bool) -> None:
    if not is_right:
        raise ApplianceError(f"the probe fork multiplied wrongly by {name}")
