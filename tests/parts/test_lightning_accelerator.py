"""Lightning's loop on devices of which it has no class, on torch 2.8 as on newer ones."""

from __future__ import annotations

import pytest
import torch

from workloads.parts.vision.lightning_loop import AnyAccelerator


@pytest.mark.parametrize("kind", ["xpu", None])
def test_teardown_frees_memory_without_what_torch_2_8_lacks(
    kind: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    freed: list[str] = []
    current = torch.device(kind) if kind else None
    monkeypatch.delattr(torch.accelerator, "empty_cache")
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: current)
    monkeypatch.setattr(torch.xpu, "empty_cache", lambda: freed.append("xpu"))
    AnyAccelerator().teardown()
    assert freed == ([kind] if kind else [])
