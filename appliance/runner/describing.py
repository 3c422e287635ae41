"""What a plan needs to know of workloads: from what is shipped, or from a child that imports them.

The cases of shipped suites have their sizes beside the workloads' facts, so planning them imports
nothing that computes. Whatever does not stand there (a suite, a workload or a version of one's
own) is asked of the worker, for the workloads in question alone. A library that is there and
cannot be imported shows in the first launch that needs it, as software.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from appliance import extras
from appliance.errors import ApplianceError, UsageError
from appliance.ipc.worker_command import worker_command
from appliance.planning import library_ranges, workload_manifest, workload_sizes
from appliance.planning.library_ranges import Stack
from appliance.planning.workload_sizes import ShippedAnswers
from appliance.probe import libraries as probed_libraries
from appliance.records.json import from_json, to_json
from appliance.records.request import Answer, CaseRequest, Lacking, Question, Refused
from appliance.records.system import DeviceLibraries, Facts
from appliance.records.workload import Resolved
from appliance.runner.environment import child_environment, usable_cores

DESCRIBE_SECONDS = 600.0
PROVIDERS = f"import {probed_libraries.ONNX} as runtime; print(*runtime.get_available_providers())"
"""Program that says what ONNX Runtime is built with, which no package metadata is sure of."""


def describe(requests: Sequence[CaseRequest]) -> Answer:
    """Ask a child to resolve `requests` in their order, and to describe the workloads they name.

    Only those are imported. Raises UsageError if torch or a part of the package that a workload
    needs is not installed, ApplianceError if the child fails.
    """
    workload_manifest.refuse_absent(requests)
    answer = _ask(requests)
    for one in answer.resolved:
        if isinstance(one, Lacking):
            raise UsageError(one.lack)
    return answer


def describe_present(
    requests: Sequence[CaseRequest],
    *,
    stack: Stack | None = None,
    libraries: DeviceLibraries | None = None,
) -> Answer:
    """The same, but a request whose software is lacking is answered by that, and ends no other's.

    What lacks a library of `stack`, or has it outside its range, is not imported at all, and
    neither is what is shipped. `libraries` must drive the devices that the requests are for: where
    the package of ONNX Runtime may not, it alone is imported, in a child of its own, to say so.
    """
    if stack is not None and extras.TORCH not in stack.installed:
        raise UsageError(f"torch is not installed: {extras.line_for('torch')}")
    known = _Known(stack=stack, libraries=libraries, shipped=workload_sizes.shipped())
    answers = [known.answer(request) for request in requests]
    pairs = list(zip(requests, answers, strict=True))
    left = [request for request, answer in pairs if answer is None]
    asked = _ask(left, libraries) if left else None
    late = iter(asked.resolved if asked else ())
    descriptions = {one.name: one for one in (asked.descriptions if asked else ())}
    for request, answer in pairs:
        is_resolved = isinstance(answer, Resolved) or (
            isinstance(answer, Lacking) and answer.resolved is not None
        )
        if is_resolved and request.workload not in descriptions:
            descriptions[request.workload] = known.shipped.description(request.workload)
    return Answer(
        descriptions=tuple(descriptions.values()),
        resolved=tuple(next(late) if answer is None else answer for answer in answers),
        software=software(),
    )


@dataclass(kw_only=True)
class _Known:
    """What is answered without the worker; `stack` and `libraries` None stand for no devices."""

    stack: Stack | None
    libraries: DeviceLibraries | None
    shipped: ShippedAnswers

    def answer(self, request: CaseRequest) -> Resolved | Refused | Lacking | None:
        """None where the worker must be asked."""
        needed = library_ranges.libraries(request, self.shipped.manifest)
        lack = "" if self.stack is None else self.stack.lack(request.workload, needed)
        if lack:
            return Lacking(lack=lack)
        resolved = self.shipped.resolved(request)
        if resolved is None or self.libraries is None:
            return resolved
        if probed_libraries.JAX in needed:
            lack = probed_libraries.plugin_lack(self.libraries)
        if probed_libraries.ONNX in needed and not probed_libraries.has_provider(self.libraries):
            if self._onnx_lack is None:
                return None
            lack = self._onnx_lack or lack
        return Lacking(lack=lack, resolved=resolved) if lack else resolved

    @cached_property
    def _onnx_lack(self) -> str | None:
        """What ONNX Runtime lacks for the devices; None where it cannot be imported by itself."""
        known = _providers()
        if known is None or self.libraries is None:
            return None
        return probed_libraries.provider_lack(self.libraries, known)


def software() -> Facts:
    """Versions of the libraries, and how torch is built: read, or asked of a child."""
    known = probed_libraries.software(usable_cores(), os.environ)
    if known is not None:
        return known
    return _ask(()).software or probed_libraries.versions()


def describe_all() -> Answer:
    """Every workload there is, each resolved at full and at small size: two for each description.

    What is shipped is read; a workload of one's own, or another version, is asked of the child. One
    that cannot be resolved here is answered by a refusal. Raises as `describe` does.
    """
    shipped = workload_sizes.shipped()
    names = workload_sizes.module_names()
    own = [name for name in names if not shipped.is_current(name)]
    requests = [one for name in own for one in workload_sizes.defaults(name)]
    asked = _ask(requests) if requests else Answer(descriptions=(), resolved=(), software={})
    described = {one.name: one for one in asked.descriptions}
    described |= {name: shipped.description(name) for name in names if name not in own}
    keys = ((one.workload, one.small) for one in requests)
    answers = dict(zip(keys, asked.resolved, strict=True))
    resolved = (
        answers.get((request.workload, request.small))
        or shipped.resolved(request)
        or Refused(error="it cannot be resolved at its defaults")
        for name in sorted(described)
        for request in workload_sizes.defaults(name)
    )
    return Answer(
        descriptions=tuple(described[name] for name in sorted(described)),
        resolved=tuple(resolved),
        software=asked.software,
    )


def _ask(requests: Sequence[CaseRequest], libraries: DeviceLibraries | None = None) -> Answer:
    question = to_json(Question(requests=tuple(requests), libraries=libraries))
    try:
        done = _run(worker_command("describe"), question)
    except subprocess.TimeoutExpired:
        raise ApplianceError(
            f"the workloads did not describe themselves within {DESCRIBE_SECONDS:.0f} s: "
            "see with `bench doctor` what holds them up"
        ) from None
    if done.returncode != 0:
        raise _undescribed(done.returncode, done.stderr.decode("utf-8", "replace"))
    return from_json(Answer, done.stdout, name="the worker's answer")


def _providers() -> list[str] | None:
    """Names of what ONNX Runtime computes by; None where it does not say."""
    try:
        done = _run([sys.executable, "-P", "-c", PROVIDERS])
    except subprocess.TimeoutExpired:
        return None
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    return lines[-1].split() if done.returncode == 0 and lines else None


def _run(command: Sequence[str], text: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """A child in a folder of its own, with the threads and the environment of a launch."""
    with tempfile.TemporaryDirectory(prefix="bench-") as work:
        environment = child_environment(
            inherited=os.environ,
            work=Path(work),
            num_threads=usable_cores(),
            vendor={},
            tokens={},
        )
        return subprocess.run(  # noqa: S603 - our own worker, or our own program
            command,
            input=text,
            capture_output=True,
            env=environment,
            cwd=work,
            timeout=DESCRIBE_SECONDS,
            check=False,
        )


def _undescribed(status: int, stderr: str) -> UsageError | ApplianceError:
    if "No module named 'torch'" in stderr:
        return UsageError(f"torch is not installed: {extras.line_for('torch')}")
    last = (stderr.strip().splitlines() or ["it printed nothing"])[-1][:300]
    return ApplianceError(f"the workloads cannot be described (exit status {status}): {last}")
