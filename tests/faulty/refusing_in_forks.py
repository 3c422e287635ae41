"""A workload whose import has torch refuse to work in a fork, as a device that was started does."""

from __future__ import annotations

import os

import torch
from faulty.misbehaving import Misbehaving


def _refuse(*_: object, **__: object) -> None:
    raise RuntimeError("cannot start the device again in a forked process")


os.register_at_fork(after_in_child=lambda: setattr(torch, "ones", _refuse))

WORKLOAD = Misbehaving
