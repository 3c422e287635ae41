"""Torch's switches of float32 products as its versions have them: what each does, and a stand-in.

`python tests/support/torch_switches.py` prints what the torch that it runs on does; what 2.8.0 to
2.13.0 printed is in tests/recorded/torch/switches.json. `switches` is a stand-in with the same
attributes, built for a type of device that no processor's torch has.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

RECORDED = Path(__file__).parents[1] / "recorded" / "torch" / "switches.json"
State = Mapping[str, str | bool]
REFUSED = "RuntimeError"
ACTIONS: Mapping[str, Callable[[Any], object]] = {
    "as imported": lambda _torch: None,
    "matmul off": lambda torch: setattr(torch.backends.cuda.matmul, "allow_tf32", False),
    "convolution off": lambda torch: setattr(torch.backends.cudnn, "allow_tf32", False),
    "new global tf32": lambda torch: setattr(torch.backends, "fp32_precision", "tf32"),
    "matmul on": lambda torch: setattr(torch.backends.cuda.matmul, "allow_tf32", True),
    "convolution on": lambda torch: setattr(torch.backends.cudnn, "allow_tf32", True),
    "new global none": lambda torch: setattr(torch.backends, "fp32_precision", "none"),
    "new matmul ieee": lambda torch: setattr(torch.backends.cuda.matmul, "fp32_precision", "ieee"),
    "medium": lambda torch: torch.set_float32_matmul_precision("medium"),
    "high": lambda torch: torch.set_float32_matmul_precision("high"),
    "highest": lambda torch: torch.set_float32_matmul_precision("highest"),
}
"""One after another; those called new are left out where torch has no newer switches."""
QUESTIONS: Mapping[str, Callable[[Any], Any]] = {
    "matmul": lambda torch: torch.backends.cuda.matmul.allow_tf32,
    "convolution": lambda torch: torch.backends.cudnn.allow_tf32,
    "precision": lambda torch: torch.get_float32_matmul_precision(),
    "new matmul": lambda torch: torch.backends.cuda.matmul.fp32_precision,
    "new convolution": lambda torch: torch.backends.cudnn.conv.fp32_precision,
    "new host matmul": lambda torch: torch.backends.mkldnn.matmul.fp32_precision,
    "new host convolution": lambda torch: torch.backends.mkldnn.conv.fp32_precision,
}


def requested(torch: Any) -> State:
    """The answers to all questions that this torch knows; one that it refuses is named so."""
    answers: dict[str, str | bool] = {}
    for name, question in QUESTIONS.items():
        try:
            answers[name] = question(torch)
        except RuntimeError:
            answers[name] = REFUSED
        except AttributeError:
            pass
    return answers


def course(torch: Any) -> dict[str, State]:
    """What it answers after each action."""
    has_newer = hasattr(torch.backends, "fp32_precision")
    states = {}
    for name, act in ACTIONS.items():
        if has_newer or not name.startswith("new"):
            act(torch)
            states[name] = requested(torch)
    return states


# ------------------------------------------------------------------ a stand-in

Key = tuple[str, str]


class _Switches:
    """The rules of torch's Context.cpp, as the recorded courses show them."""

    def __init__(self) -> None:
        self.precision = "highest"
        self.convolution = True
        self.onednn = False
        self.newer: dict[Key, str] = {("cuda", "conv"): "tf32", ("cuda", "rnn"): "tf32"}

    def effective(self, backend: str, op: str) -> str:
        keys = ((backend, op), (backend, "all"), ("generic", "all"))
        return next(
            (self.newer[key] for key in keys if self.newer.get(key, "none") != "none"), "none"
        )

    def set_precision(self, value: str) -> None:
        self.precision = value
        of_matmul = {"highest": "ieee", "high": "tf32", "medium": "tf32"}
        of_host = {"highest": "ieee", "high": "tf32", "medium": "bf16"}
        self.newer["cuda", "matmul"] = of_matmul[value]
        self.newer["mkldnn", "matmul"] = of_host[value]

    def set_matmul(self, value: bool) -> None:  # noqa: FBT001 - torch's own
        self.precision = "high" if value else "highest"
        self.newer["cuda", "matmul"] = "tf32" if value else "ieee"

    def set_convolution(self, value: bool) -> None:  # noqa: FBT001 - torch's own
        self.convolution = value
        self.newer["cuda", "conv"] = self.newer["cuda", "rnn"] = "tf32" if value else "none"

    def get_precision(self, *, has_newer: bool) -> str:
        wrong_host = {"bf16": "medium", "tf32": "high"}.get(self.effective("mkldnn", "matmul"))
        is_tf32 = self.effective("cuda", "matmul") == "tf32"
        if has_newer and (
            (is_tf32 and self.precision == "highest") or wrong_host not in (None, self.precision)
        ):
            raise RuntimeError("mix of the legacy and new APIs")
        return self.precision

    def get_matmul(self, *, has_newer: bool) -> bool:
        is_on = self.precision != "highest"
        if has_newer and is_on != (self.effective("cuda", "matmul") == "tf32"):
            raise RuntimeError("mix of the legacy and new APIs")
        return is_on

    def get_convolution(self, *, has_newer: bool) -> bool:
        if has_newer and self.convolution != (self.effective("cuda", "conv") == "tf32"):
            raise RuntimeError("mix of the legacy and new APIs")
        return self.convolution


class _Module:
    """Attributes that are questions and actions; others are not there."""

    def __init__(self, **properties: tuple[Callable[[], Any], Callable[[Any], None]]) -> None:
        self.__dict__["properties"] = properties

    def __getattr__(self, name: str) -> Any:
        if name not in self.properties:
            raise AttributeError(name)
        return self.properties[name][0]()

    def __setattr__(self, name: str, value: object) -> None:
        if name not in self.properties:
            raise AttributeError(name)
        self.properties[name][1](value)


def switches(*, has_newer: bool, has_onednn: bool = False) -> Any:
    """A stand-in for torch; `has_newer` from 2.9 on, `has_onednn` where built for such devices."""
    rules = _Switches()

    def newer(backend: str, op: str) -> Any:
        key = (backend, op)
        return lambda: rules.effective(*key), lambda value: rules.newer.__setitem__(key, value)

    def module(**older: Any) -> Callable[..., _Module]:
        def made(**key: Key) -> _Module:
            more = {name: newer(*each) for name, each in key.items()} if has_newer else {}
            return _Module(**older, **more)

        return made

    matmul = (lambda: rules.get_matmul(has_newer=has_newer)), rules.set_matmul
    convolution = (lambda: rules.get_convolution(has_newer=has_newer)), rules.set_convolution
    onednn = (
        (lambda: rules.onednn if has_onednn else None),
        (lambda value: setattr(rules, "onednn", value)),
    )

    def constant(value: Any) -> Any:
        return (lambda: value), (lambda _value: None)

    cudnn: dict[str, Any] = {"allow_tf32": convolution}
    mkldnn: dict[str, Any] = {"allow_tf32": onednn}
    if has_newer:
        cudnn["conv"] = constant(module()(fp32_precision=("cuda", "conv")))
        for name, op in (("matmul", "matmul"), ("conv", "conv")):
            mkldnn[name] = constant(module()(fp32_precision=("mkldnn", op)))
    of_matmul = module(allow_tf32=matmul)(fp32_precision=("cuda", "matmul"))
    backends = module(
        cuda=constant(SimpleNamespace(matmul=of_matmul)),
        cudnn=constant(_Module(**cudnn)),
        mkldnn=constant(_Module(**mkldnn)),
    )(fp32_precision=("generic", "all"))
    return SimpleNamespace(
        backends=backends,
        get_float32_matmul_precision=lambda: rules.get_precision(has_newer=has_newer),
        set_float32_matmul_precision=rules.set_precision,
    )


if __name__ == "__main__":
    import torch

    json.dump({torch.__version__.partition("+")[0]: course(torch)}, sys.stdout, indent=1)
