"""What a fork server's probe fork computes: what a fork of an unhealthy process cannot do.

By the framework that its launches will use, on the vendor's device: a device's context, a thread
pool or a lock that importing left behind shows here, by an exception, a crash, a hang or a wrong
number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from appliance.errors import ApplianceError
from appliance.records.suite import Framework
from appliance.vendors.base import Vendor

SIZE = 512
"""Rows of the matrices: enough work for all threads of the processors."""
OPERATORS, FORMAT = 17, 8
"""Set of operators of ONNX and the version of its format that brought it (onnx, "Versioning"):
old enough for every runtime that the suite takes."""


def compute(vendor: Vendor, framework: Framework) -> None:
    """Multiply matrices by torch and by the framework; raises whatever is wrong."""
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
