"""Rows that draw on the device: the bits of the host there, and one wrong integer is found."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from support.device_draws import DeviceDraws, bytes_of

from appliance.generator.drawing import Drawn, sampled_runs
from workloads.bert import Bert
from workloads.contract.target import Artifacts, Target
from workloads.contract.workload import Workload
from workloads.diffusion import Diffusion
from workloads.dimenet import Dimenet
from workloads.dinov2_giant import Dinov2Giant
from workloads.llava import Llava
from workloads.llm_full import LlmFull
from workloads.llm_lora import LlmLora
from workloads.onnx_bert import OnnxBert
from workloads.onnx_llama import OnnxLlama
from workloads.onnx_whisper import OnnxWhisper
from workloads.parts.curves.curves import start_digest
from workloads.parts.drawing import drawn
from workloads.parts.drawing.device_tensors import INTEGERS
from workloads.parts.drawing.drawn import Drawer, Draws, HostDraws
from workloads.parts.drawing.initial_weights import initialized
from workloads.parts.training.inputs import Tensors
from workloads.parts.training.state import seeded
from workloads.pna import Pna
from workloads.reformer import Reformer
from workloads.resnet50 import Resnet50
from workloads.resnet152 import Resnet152
from workloads.rlhf import Rlhf
from workloads.t5 import T5
from workloads.text_to_image import TextToImage
from workloads.vjepa import Vjepa
from workloads.whisper import Whisper
from workloads.whisper_transcribe import WhisperTranscribe

SEED = 5
Draw = Callable[[Drawer, int], Callable[[int], Tensors]]
ROWS: dict[str, Draw] = {
    "bert": Bert(**Bert.small)._draw,
    "diffusion": Diffusion(**Diffusion.small).draw,
    "dimenet": lambda drawer, rank: partial(Dimenet(**Dimenet.small).inputs, drawer, rank),
    "dinov2_giant": Dinov2Giant(**Dinov2Giant.small).draw,
    "llava": Llava(**Llava.small).draw,
    "llm_full": LlmFull(**LlmFull.small).draw,
    "llm_lora": LlmLora(**LlmLora.small).draw,
    "pna": lambda drawer, rank: partial(Pna(**Pna.small).inputs, drawer, rank),
    "reformer": Reformer(**Reformer.small).draw,
    "resnet50": Resnet50(**Resnet50.small).inputs,
    "rlhf": Rlhf(**Rlhf.small).draw,
    "t5": T5(**T5.small).draw,
    "vjepa": Vjepa(**Vjepa.small).draw,
    "whisper": Whisper(**Whisper.small).draw,
}
TRANSCRIBE = WhisperTranscribe(**WhisperTranscribe.small)
INFERENCE: dict[str, Callable[[Drawer], object]] = {
    "onnx_bert": lambda drawer: OnnxBert(**OnnxBert.small).inputs(drawer, 0),
    "onnx_llama": lambda drawer: OnnxLlama(**OnnxLlama.small).inputs(drawer, 0),
    "onnx_whisper": lambda drawer: OnnxWhisper(**OnnxWhisper.small).inputs(drawer, 0),
    "text_to_image": lambda drawer: TextToImage(**TextToImage.small)._draw(drawer, 0),
    "whisper_transcribe": lambda drawer: TRANSCRIBE._filled(drawer, torch.device("cpu")),
}
HOST = torch.device("cpu")
WEIGHTS: dict[str, Callable[[Drawer], object]] = {
    "weights of bert": lambda drawer: initialized(Bert(**Bert.small)._model, drawer, HOST),
    "weights of dinov2_giant": lambda drawer: Dinov2Giant(**Dinov2Giant.small).fresh(drawer, HOST),
    "weights of llava": lambda drawer: Llava(**Llava.small).fresh(drawer, HOST),
    "weights of llm_full": lambda drawer: LlmFull(**LlmFull.small).fresh(drawer, HOST),
    "weights of llm_lora": lambda drawer: LlmLora(**LlmLora.small).fresh(drawer, HOST),
    "weights of resnet152": lambda drawer: Resnet152(**Resnet152.small).fresh(drawer, HOST),
    "weights of resnet50": lambda drawer: Resnet50(**Resnet50.small).fresh(drawer, HOST),
    "weights of rlhf": lambda drawer: initialized(Rlhf(**Rlhf.small)._scaled, drawer, HOST),
    "weights of vjepa": lambda drawer: Vjepa(**Vjepa.small).fresh(drawer, HOST),
}
OTHERS = INFERENCE | WEIGHTS
MASK = "attention_mask"
"""What a row says of positions alone, the same of every batch."""


@pytest.mark.parametrize("name", ROWS)
def test_a_device_draws_the_batch_of_the_host_and_ranks_draw_others(name: str) -> None:
    device = DeviceDraws(SEED)
    made, host = ROWS[name](device, 1)(1), ROWS[name](HostDraws(seed=SEED), 1)
    again = host(1)
    assert {key: bytes_of(one) for key, one in made.items()} == {
        key: bytes_of(one) for key, one in again.items()
    }
    assert [one.stride() for one in made.values()] == [one.stride() for one in again.values()]
    assert len(set(device.names)) == len(device.names)
    others = [host(0), ROWS[name](HostDraws(seed=SEED), 0)(1)]
    for key in made.keys() - {MASK}:
        assert len({bytes_of(one[key]) for one in (made, *others)}) == 3, key


@pytest.mark.parametrize("name", [*ROWS, *OTHERS])
def test_one_wrong_integer_of_a_device_is_found_in_every_tensor_that_a_row_draws(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each is held by itself, so that the first that differs can be named."""

    def with_one_wrong(one: Drawn, device: torch.device) -> torch.Tensor:
        tensor = drawn.drawn_by_device(one, device)
        first, count = sampled_runs(one)[-1]
        bits = tensor.view(-1).view(INTEGERS[tensor.element_size()])
        bits[first + count - 1] ^= 1
        return tensor

    monkeypatch.setattr(drawn, "on_device", with_one_wrong)
    target = Target(device=torch.device("cpu"), artifacts=Artifacts(tmp_path))
    drawer = Draws(target=target, seed=SEED)
    if name in ROWS:
        ROWS[name](drawer, 0)(0)
    else:
        OTHERS[name](drawer)
    answers, inputs = drawn.checks(target)
    assert answers.is_within
    assert inputs.error == len(target.drawn) > 0
    assert f'"{target.drawn[0].drawn.name}" differs' in inputs.detects_what


TRAININGS: list[type[Workload[Any, Any]]] = [
    Bert,
    Dinov2Giant,
    Llava,
    LlmFull,
    LlmLora,
    Resnet152,
    Resnet50,
    Rlhf,
    T5,
    Vjepa,
    Whisper,
]


@pytest.mark.parametrize("kind", TRAININGS, ids=lambda kind: kind.__name__)
def test_nothing_of_a_training_begins_by_torchs_generator(
    kind: type[Workload[Any, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It draws other bits on a processor with other instructions; names are held apart too."""

    def otherwise(seed: int, make: Callable[[], torch.nn.Module]) -> torch.nn.Module:
        return seeded(seed + 1, make)

    target = Target(device=HOST, artifacts=Artifacts(tmp_path))
    start = start_digest(kind(**kind.small).build(target, SEED))
    names = [one.drawn.name for one in target.drawn]
    assert len(set(names)) == len(names)
    for module in ("workloads.parts.training.state", "workloads.rlhf"):
        monkeypatch.setattr(f"{module}.seeded", otherwise)
    again = kind(**kind.small).build(replace(target, drawn=[]), SEED)
    assert start_digest(again) == start
