"""Sessions of ONNX Runtime of which is known what ran where.

ONNX Runtime falls back to the processor without an error, a session or a single node of it; so
the session's providers are asked, and the profile of one run, whose nodes are counted by provider
and printed with the graph optimisation that made them.

Threads of a session do not spin while they wait: they would take the cores from those that work,
and a launch would time its neighbours.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

from appliance.records.journal import Check

ON_HOST = "CPUExecutionProvider"
MOST_BYTES = 2**31
"""Of one file, weights and all: what the format allows."""
TF32_OPTION = "use_tf32"
NO_OPTIONS: Mapping[str, str] = {}
Array = np.ndarray[Any, np.dtype[Any]]
Nodes = Counter[tuple[str, str]]
"""How many nodes ran, by provider and kind."""


def session_options() -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.inter_op_num_threads = 1
    options.use_deterministic_compute = True
    options.log_severity_level = 3  # errors; what runs where is checked
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def open_session(
    file: Path,
    providers: Sequence[str],
    options: Any = None,
    opened_with: Mapping[str, str] = NO_OPTIONS,
) -> Any:
    """Open the file on the first provider, or on those after it where the first is not there.

    Where it is there, built in or registered as a plugin, no single node may fall back to the
    processor. `opened_with` are the first provider's own options.
    """
    options = options or session_options()
    first = providers[0]
    is_built_in = first in onnxruntime.get_available_providers()
    if first == ON_HOST or not (is_built_in or plugged(first)):
        return onnxruntime.InferenceSession(file, options, providers=list(providers))
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    if is_built_in:
        chosen = [(first, dict(opened_with))]
        return in_full(onnxruntime.InferenceSession(file, options, providers=chosen))
    return open_on(file, options, plugged(first)[0], opened_with)


def in_full(session: Any) -> Any:
    """Have a provider that would shorten float32 products unasked make them in full; the session.

    ONNX Runtime's own for devices with TF32 have it on by default (its documentation of execution
    providers, option "use_tf32"); torch's settings mean nothing to them.
    """
    first = session.get_providers()[0]
    if session.get_provider_options().get(first, {}).get(TF32_OPTION, "0") != "0":
        session.set_providers([first], [{TF32_OPTION: "0"}])
    return session


def plugged(provider: str) -> list[Any]:
    """Devices of a provider that was registered as a plugin; empty if there is none."""
    return [one for one in onnxruntime.get_ep_devices() if one.ep_name == provider]


def open_on(
    file: Path, options: Any, device: Any, opened_with: Mapping[str, str] = NO_OPTIONS
) -> Any:
    """Open the file on one device of a plugin: these are chosen by device and not by name."""
    options.add_provider_for_devices([device], dict(opened_with))
    return onnxruntime.InferenceSession(file, options)


def run(session: Any, inputs: Mapping[str, Array]) -> Array:
    """Answer one request from the host; its only output."""
    answer: Array = session.run(None, inputs)[0]
    return answer


def profile(
    file: Path,
    providers: Sequence[str],
    inputs: Mapping[str, Array],
    opened_with: Mapping[str, str] = NO_OPTIONS,
) -> Nodes:
    """Nodes of one run of a session like the one that is timed, which itself keeps no profile."""
    with tempfile.TemporaryDirectory() as folder:
        options = session_options()
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "profile")
        session = open_session(file, providers, options, opened_with)
        run(session, inputs)
        return nodes_of(json.loads(Path(session.end_profiling()).read_text()))


def nodes_of(events: Sequence[Mapping[str, Any]]) -> Nodes:
    """Count the nodes of a profile that ran a kernel, by provider and kind."""
    return Counter(
        (event["args"]["provider"], event["args"]["op_name"])
        for event in events
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time")
    )


def check_providers(
    session: Any, asked_for: str, nodes: Nodes, opened_with: Mapping[str, str] = NO_OPTIONS
) -> Iterator[Check]:
    """What ran where: an answer that is right may still be the processor's.

    What the provider was opened with stands in the record beside it.
    """
    yield Check(
        name="provider that runs is not the one asked for",
        error=int(session.get_providers()[0] != asked_for),
        bound=0.0,
        kind="exact",
    )
    elsewhere = sum(count for (where, _), count in nodes.items() if where != asked_for)
    kinds = ", ".join(f"{count} {kind}" for (_, kind), count in sorted(nodes.items()))
    level = session.get_session_options().graph_optimization_level.name
    given = ", ".join(f"{key}={value}" for key, value in opened_with.items())
    yield Check(
        name="nodes that ran on another provider",
        error=elsewhere if nodes else 1,
        bound=0.0,
        kind="exact",
        detects=1.0,
        detects_what=f"nodes, of those that ran at {level}{given and f' with {given}'}: {kinds}",
    )
