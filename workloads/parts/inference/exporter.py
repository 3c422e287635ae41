"""Models exported from torch to ONNX, by tables that a process makes once.

Torch's exporter makes tables anew in each export: which operator of ONNX stands for which of
torch's, how the others are taken apart, and which of these torch itself takes apart before it sees
them. They follow from torch's version alone and take 0.35 s on an EPYC, nearly as long as the rest
of a small export. So they are made once a process, and before that by the server that forks it
(`appliance/worker/forkserver.py`): from functions of Python, and no operator of torch runs for it.
A torch that makes them elsewhere makes them again.

What of a traced network no operator of ONNX stands for is taken apart by tracing all of it once
more, which takes as long again as all else. Where there is nothing to take apart it is not done,
and a network may be written so that there is nothing (`InNewTensors`).
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torch.overrides import TorchFunctionMode

IMPORTED = (
    "onnxscript",
    "onnxscript.function_libs.torch_lib.ops",
    "torch.onnx._internal.exporter._core",
    "torch.onnx._internal.exporter._compat",
    "torch.export._trace",
)
"""What torch imports when it exports a model: 0.9 s on an EPYC.

Importing a workload does not, as it takes longer than all else that tells of it."""
_EXPORTER = "torch.onnx._internal.exporter."


def export(
    network: torch.nn.Module, inputs: Mapping[str, torch.Tensor], output: str, path: Path
) -> None:
    """Write a network of named inputs, in the order of its arguments, and one output."""
    with warnings.catch_warnings(), _tables_made_once():
        # torch's exporter uses what torch itself has deprecated
        warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)`", FutureWarning)
        torch.onnx.export(
            network.eval(),
            tuple(inputs.values()),
            path,
            dynamo=True,
            external_data=False,
            input_names=list(inputs),
            output_names=[output],
            verbose=False,
        )


class InNewTensors(TorchFunctionMode):
    """While a network is traced, what it adds in place makes a new tensor, and pooling is a mean.

    This is what an export makes of both by itself, with the same nodes. Only for networks that use
    no other view of what they add to.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        del types
        if func is torch.Tensor.add_:  # as which `+=` comes
            func = torch.Tensor.add
        if func is torch.nn.functional.adaptive_avg_pool2d and args[1:] == ((1, 1),):
            return args[0].mean((-1, -2), keepdim=True)
        return func(*args, **(kwargs or {}))


@torch.no_grad()
def without_normalisations(network: torch.nn.Module, dtype: torch.dtype) -> torch.nn.Module:
    """A copy for inference whose convolutions hold the normalisations that follow them.

    Merged in float64 and rounded once to `dtype`. The exporter would merge them itself, and a
    runtime too; but it would follow each of them three times before.
    """
    result = copy.deepcopy(network).double().eval()
    for module in result.modules():
        first, second = (getattr(module, name, None) for name in ("convolution", "normalization"))
        if isinstance(first, torch.nn.Conv2d) and isinstance(second, torch.nn.BatchNorm2d):
            module.convolution = fuse_conv_bn_eval(first, second)
            module.normalization = torch.nn.Identity()
    return result.to(dtype).requires_grad_(requires_grad=False)


def prepare_exports(imported: Callable[[str], object]) -> None:
    """Import what exports need and make their tables; `imported` is called after each part.

    Another version of torch may have other parts, which it then imports as it exports.
    """
    for name in IMPORTED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
        imported(name)
    with contextlib.suppress(ImportError, AttributeError, TypeError), _tables_made_once():
        core, decompositions = (importlib.import_module(f"{_EXPORTER}{name}") for name in _OWNERS)
        constants = importlib.import_module(f"{_EXPORTER}_constants")
        default = importlib.import_module("torch.onnx._constants").ONNX_DEFAULT_OPSET
        registry = core.ONNXRegistry().from_torchlib(
            opset_version=max(default, constants.TORCHLIB_OPSET)
        )
        operators = set(decompositions.get_onnx_implemented_overloads(registry))
        table = decompositions.create_onnx_friendly_decomposition_table(operators)
        getattr(importlib.import_module(_PROGRAMS), _SPLIT)(dict(table))
    imported("tables of torch.onnx")


_OWNERS = ("_registration", "_decomp")
_PROGRAMS, _SPLIT = (
    "torch.export.exported_program",
    "_split_decomp_table_to_cia_and_python_decomp",
)


@contextlib.contextmanager
def _tables_made_once() -> Iterator[None]:
    """Have torch's exporter take tables that this process, or its server, has made before."""
    with contextlib.ExitStack() as stack:
        for owner, name, made in _memories():
            stack.enter_context(mock.patch.object(owner, name, made))
        yield


@functools.cache
def _memories() -> tuple[tuple[Any, str, Any], ...]:
    """What makes a table (its owner, its name), and what makes it once for the same arguments."""
    try:
        registration, decompositions = (
            importlib.import_module(f"{_EXPORTER}{name}") for name in _OWNERS
        )
        of_operators = functools.cache(registration.ONNXRegistry.from_torchlib)
        decomposing = functools.cache(decompositions.create_onnx_friendly_decomposition_table)
    except (ImportError, AttributeError):
        return ()

    def once(operators: Collection[Any]) -> Any:
        return decomposing(frozenset(operators))

    return (
        (registration.ONNXRegistry, "from_torchlib", staticmethod(of_operators)),
        (decompositions, "create_onnx_friendly_decomposition_table", once),
        *_splitting(),
        *_taking_apart(),
    )


def _splitting() -> Iterator[tuple[Any, str, Any]]:
    """The same of the table's two halves: it goes over every operator of torch for them.

    They are the caller's, who changes them.
    """
    try:
        owner = importlib.import_module(_PROGRAMS)
        make = getattr(owner, _SPLIT)
    except (ImportError, AttributeError):
        return
    halves = functools.cache(lambda entries: make(dict(entries)))

    def once(table: Mapping[Any, Any]) -> Any:
        return tuple(dict(half) for half in halves(frozenset(table.items())))

    yield owner, _SPLIT, once


def _taking_apart() -> Iterator[tuple[Any, str, Any]]:
    """What takes a traced network apart where ONNX lacks an operator of it, or one changes tensors.

    Else it would trace all of it once more, and find nothing.
    """
    try:
        owner, decompositions = (
            importlib.import_module(f"{_EXPORTER}{name}") for name in ("_fx_passes", "_decomp")
        )
        take_apart, implemented = (
            owner.decompose_with_registry,
            decompositions.get_onnx_implemented_overloads,
        )
    except (ImportError, AttributeError):
        return

    def where_needed(program: Any, registry: Any) -> Any:
        operators = frozenset(implemented(registry))
        is_whole = all(
            node.op in ("placeholder", "output")
            or (node.target in operators and not _may_change_tensors(node.target))
            for node in program.graph.nodes
        )
        return program if is_whole else take_apart(program, registry)

    yield owner, "decompose_with_registry", where_needed


def _may_change_tensors(operator: Any) -> bool:
    """Whether it has said that it does, or says nothing, as a function of Python does not."""
    return bool(getattr(getattr(operator, "_schema", None), "is_mutable", True))
