"""The models are the published ones, and their parts judge what they say they judge."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from workloads.bert import Bert
from workloads.char_lm import CharLm
from workloads.contract.failures import ParameterError
from workloads.contract.target import Artifacts, Target
from workloads.contract.workload import Workload
from workloads.convnext_large import ConvnextLarge
from workloads.diffusion import Diffusion
from workloads.dimenet import Dimenet
from workloads.dinov2_giant import Dinov2Giant
from workloads.focalnet import Focalnet
from workloads.lightning_resnet152 import LightningResnet152
from workloads.llama import Llama
from workloads.llava import Llava
from workloads.llm_chat import LlmChat
from workloads.llm_full import LlmFull
from workloads.llm_lora import LlmLora
from workloads.onnx_bert import OnnxBert
from workloads.onnx_llama import OnnxLlama
from workloads.onnx_resnet50 import OnnxResnet50
from workloads.onnx_whisper import OnnxWhisper
from workloads.parts.datasets.text import (
    FIRST_ORDINARY,
    IGNORED,
    MASK,
    Language,
    masked_text,
    shakespeare,
)
from workloads.parts.drawing.drawn import HostDraws
from workloads.parts.numerics.precision import compare_logits, dtype_named
from workloads.parts.numerics.size import count_inference_flops
from workloads.parts.numerics.weights import draw
from workloads.parts.training.dropout import generator_of
from workloads.parts.training.optimizers import AdamW, Momentum, Optimizer
from workloads.parts.vision.resnet import DEPTHS_50, resnet
from workloads.parts.vision.resnet_training import ResnetTraining
from workloads.pna import Pna
from workloads.reformer import Reformer
from workloads.regnet_y_128gf import RegnetY128gf
from workloads.resnet50 import Resnet50
from workloads.resnet50_jpeg import Resnet50Jpeg
from workloads.resnet152 import Resnet152
from workloads.rlhf import Rlhf
from workloads.t5 import T5
from workloads.text_to_image import TextToImage
from workloads.vjepa import Vjepa
from workloads.whisper import Whisper
from workloads.whisper_transcribe import WhisperTranscribe

DINO_HEAD = (1537 * 2048) + (2049 * 2048) + (2049 * 384) + (385 * 131_072)
"""Three layers with biases, and prototypes with a gain each."""
WHISPER_ENCODER = (
    (3 * 128 + 1) * 1280
    + (3 * 1280 + 1) * 1280  # two convolutions
    + 1500 * 1280
    + 32 * (4 * 1280**2 + 3 * 1280 + 8 * 1280**2 + 5 * 1280 + 4 * 1280)
    + 2 * 1280
)
PUBLISHED = {
    Resnet50: 25_557_032,
    OnnxResnet50: 25_557_032,
    Bert: 109_514_298,
    Llama: 6_738_415_616,
    CharLm: 10_646_784 + 256 * 384,  # nanoGPT counts without its position embeddings
    Resnet50Jpeg: 25_557_032,
    Resnet152: 60_192_808,
    LightningResnet152: 60_192_808,
    ConvnextLarge: 197_767_336,
    RegnetY128gf: 644_812_894,
    Focalnet: 88_749_768,
    T5: 60_506_624,
    Reformer: 5_975_872,
    Whisper: 8_307_458,
    LlmLora: 8_030_261_248,  # without adapters
    LlmFull: 70_553_706_496,
    Llava: 7_063_427_072,
    Dinov2Giant: 1_134_771_200 + 2 * DINO_HEAD,  # the backbone at 224 pixels, and its two heads
    Vjepa: 653_930_880,
    Pna: 4_678_339,
    Dimenet: 534_950,
    Diffusion: 865_910_724 + 83_653_863 + 340_387_840,  # U-Net, autoencoder and text encoder
    Rlhf: 2 * (1_011_781_632 + 908_761_088),  # policy and reference, value and reward
    LlmChat: 8_030_261_248,
    WhisperTranscribe: 1_543_490_560,
    TextToImage: 11_901_408_320 + 4_762_310_656 + 123_060_480 + 83_819_683,
    OnnxBert: 109_514_298,
    OnnxWhisper: WHISPER_ENCODER,
    OnnxLlama: 2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14_336 + 2 * 4096,
}
MODULES = ("resnet50", "bert", "llama", "onnx_resnet50", "char_lm", "llm_agreement")


@pytest.mark.parametrize("kind", PUBLISHED, ids=lambda kind: kind.__name__)
def test_full_size_has_the_published_number_of_parameters(kind: type[Workload[Any, Any]]):
    assert kind().num_parameters() == PUBLISHED[kind]


@pytest.mark.parametrize(
    "kind", [Resnet50, Resnet50Jpeg, Resnet152, LightningResnet152], ids=lambda kind: kind.__name__
)
def test_small_resnet_keeps_every_kind_of_layer(kind: type[ResnetTraining]):
    def layers(workload: ResnetTraining) -> set[tuple[object, ...]]:
        with torch.device("meta"):
            network = workload.network()
        names = ("kernel_size", "stride", "padding")
        return {
            (type(one).__name__, *(getattr(one, name, None) for name in names))
            for one in network.modules()
        }

    small = kind(**kind.small)
    assert layers(small) == layers(kind())
    assert small.num_parameters() < PUBLISHED[kind] / 10


def test_resnet_costs_the_published_multiplications():
    """He et al. print 3.8e9 and count no projections; with them it is 4.09e9."""
    flops = count_inference_flops(lambda: resnet(DEPTHS_50), {"pixel_values": (1, 3, 224, 224)})
    assert flops / 2 == pytest.approx(4.09e9, rel=0.01)


def test_decoding_counts_each_weight_twice_for_each_token():
    one, two = Llama(new_tokens=1, prompt=1), Llama(new_tokens=2, prompt=1)
    weights = PUBLISHED[Llama] - 32_000 * 4096  # the embedding is looked up
    assert two.work().flops - one.work().flops == pytest.approx(2 * weights, rel=1e-3)
    assert one.work().bytes == pytest.approx(2 * weights, rel=1e-3)


def test_import_runs_no_operator():
    """A forked launch is sound only if the server that it came from never computed anything."""
    script = f"""
import torch
from torch.utils._python_dispatch import TorchDispatchMode

ran = []

class Watch(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        ran.append(str(func))
        return func(*args, **(kwargs or {{}}))

import transformers, onnxruntime
with Watch():
    import importlib
    for name in {MODULES!r}:
        importlib.import_module(f"workloads.{{name}}")
print(ran)
"""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=1500,
        check=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert done.stdout.strip() == "[]"


# ------------------------------------------------------------------ optimisers


@pytest.mark.parametrize(
    "rule",
    [
        Momentum(learning_rate=0.1),
        AdamW(learning_rate=1e-3),
        AdamW(learning_rate=1e-3, warmup=2, steps=6),
    ],
    ids=("momentum", "adamw", "adamw with a schedule"),
)
def test_formula_is_that_of_torch(rule: Optimizer):
    torch.manual_seed(0)
    layer = torch.nn.Linear(5, 3).double()
    optimizer = rule.make(layer)
    moments: dict[str, dict[str, torch.Tensor]] = {"weight": {}, "bias": {}}
    for number in range(4):
        for group in optimizer.param_groups:
            group["lr"] = rule.learning_rate_at(number)
        optimizer.zero_grad()
        layer(torch.randn(7, 5).double()).square().sum().backward()
        expected = {
            name: rule.update(weight.detach().clone(), weight.grad, moments[name], number)
            for name, weight in layer.named_parameters()
        }
        optimizer.step()
        for name, weight in layer.named_parameters():
            torch.testing.assert_close(weight.detach(), expected[name]["weight"].value)
            moments[name] = {
                key: updated.value for key, updated in expected[name].items() if key != "weight"
            }


# ------------------------------------------------------------------ data


def test_masked_text_masks_as_bert_does_and_can_be_told_from_neighbours():
    language = Language.of(HostDraws(seed=1), 1000)
    tokens, labels = masked_text(language, "0", count=64, length=100)
    chosen = labels != IGNORED
    assert (chosen.sum(dim=1) == 15).all()
    assert (tokens[chosen] == MASK).float().mean().item() == pytest.approx(0.8, abs=0.05)
    truth = torch.where(chosen, labels, tokens)
    assert truth.min() >= FIRST_ORDINARY
    followers: dict[int, set[int]] = {}
    for row in truth.tolist():
        for token, following in pairwise(row):
            followers.setdefault(token, set()).add(following)
    assert max(map(len, followers.values())) <= 4


def test_missing_text_is_named_with_the_command_that_gets_it(tmp_path: Path):
    with pytest.raises(ParameterError, match=r"tinyshakespeare.*input\.txt.*bench data fetch"):
        shakespeare(tmp_path)


def test_other_text_is_refused(tmp_path: Path):
    (tmp_path / "tinyshakespeare").mkdir()
    (tmp_path / "tinyshakespeare" / "input.txt").write_text("a" * 1_115_394)
    with pytest.raises(ParameterError, match="is not the text"):
        shakespeare(tmp_path)


# ------------------------------------------------------------------ judging


def test_weight_depends_on_seed_and_name_alone():
    assert torch.equal(draw("a", (3, 4), 1), draw("a", (3, 4), 1))
    assert not torch.equal(draw("a", (3, 4), 1), draw("b", (3, 4), 1))
    assert not torch.equal(draw("a", (3, 4), 1), draw("a", (3, 4), 2))


def test_factor_hidden_by_the_noise_of_bfloat16_is_seen():
    rng = torch.Generator().manual_seed(1)
    exact = torch.randn(8, 1000, generator=rng).double()
    noisy = exact + 0.02 * torch.randn(8, 1000, generator=rng)

    def seen(output: torch.Tensor) -> set[str]:
        checks = compare_logits(output, exact, unit_roundoffs=50, dtype=torch.bfloat16)
        return {check.name for check in checks if not check.is_within}

    assert seen(noisy) == set()
    assert seen(noisy * 1.01) == {"scale of the logits"}


def test_logits_that_ignore_their_input_are_refused():
    exact = torch.randn(1, 1000, generator=torch.Generator().manual_seed(1)).double()
    constant = exact.expand(8, 1000)
    names = [
        c.name
        for c in compare_logits(constant, constant, unit_roundoffs=50, dtype=torch.float32)
        if not c.is_within
    ]
    assert names == ["logits depend on the input"]


@pytest.mark.parametrize("name", ["float8", "int64", "Tensor"])
def test_format_that_no_case_has_is_refused(name: str):
    with pytest.raises(ParameterError, match=name):
        dtype_named(name)


@pytest.mark.parametrize("kind", [Resnet50, OnnxResnet50])
def test_too_few_values_to_normalise_are_refused(kind: type[Resnet50]):
    with pytest.raises(ParameterError, match=r"side is 32.*batch is 7"):
        kind(batch=7, side=32)


# ------------------------------------------------------------------ the workloads


def on_processor(folder: Path, *providers: str) -> Target:
    return Target(device=torch.device("cpu"), artifacts=Artifacts(folder), onnx_providers=providers)


def trained(workload: Workload[Any, Any], folder: Path, number: int = 1):
    state = workload.build(on_processor(folder), seed=5)
    for _ in range(number):
        before = workload.snapshot(state)
        output = workload.step(state)
    return list(workload.check(before, state, output)), output


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_mixed_precision_step_is_within_its_wider_bounds(tmp_path: Path, dtype: str):
    checks, _ = trained(Bert(**{**Bert.small, "dtype": dtype, "batch": 2}), tmp_path, number=2)
    assert [check.name for check in checks if not check.is_within] == []


def test_decoding_in_bfloat16_is_within_its_wider_bounds(tmp_path: Path):
    workload = Llama(**{**Llama.small, "dtype": "bfloat16", "new_tokens": 6})
    checks, _ = trained(workload, tmp_path)
    assert [check.name for check in checks if not check.is_within] == []


def test_damaged_cache_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """One key of one past position in one layer, after the prompt was read."""
    workload = Llama(**{**Llama.small, "new_tokens": 6})
    state = workload.build(on_processor(tmp_path), seed=5)
    whole = state.model.forward

    def damaged(*args: Any, **kwargs: Any) -> Any:
        result = whole(*args, **kwargs)
        if kwargs["input_ids"].shape[1] > 1:
            kwargs["past_key_values"].layers[1].keys[0, 0, 7, 0] += 1.0
        return result

    monkeypatch.setattr(state.model, "forward", damaged)
    before = workload.snapshot(state)
    names = [c.name for c in workload.check(before, state, workload.step(state)) if not c.is_within]
    assert "logits against float64" in names


def test_single_query_is_judged_and_a_provider_that_fell_back_is_seen(tmp_path: Path):
    changes = {"batch": 1, "side": 96, "num_inputs": 2, "num_agreement": 8}
    workload = OnnxResnet50(**{**OnnxResnet50.small, **changes})
    providers = ("CPUExecutionProvider",)
    state = workload.build(on_processor(tmp_path, *providers), seed=5)
    before = workload.snapshot(state)
    output = workload.step(state)
    assert [c.name for c in workload.check(before, state, output) if not c.is_within] == []
    state.asked_for = "AnotherExecutionProvider"
    names = [c.name for c in workload.check(before, state, output) if not c.is_within]
    assert names == [
        "provider that runs is not the one asked for",
        "nodes that ran on another provider",
    ]


def test_answer_to_a_single_query_that_depends_on_no_input_is_seen():
    """Its own logits alone could not show it, nor could a reference as constant as they are."""
    constant = torch.randn(1, 10)
    varied = torch.cat((constant, torch.randn(2, 10)))

    def is_seen(others: torch.Tensor) -> bool:
        checks = compare_logits(
            constant, constant, unit_roundoffs=9, dtype=torch.float32, others=others
        )
        return [check.name for check in checks if not check.is_within] == [
            "logits depend on the input"
        ]

    assert is_seen(constant.expand(3, 10))
    assert not is_seen(varied)


@pytest.mark.parametrize("kind", [Llama, OnnxResnet50])
def test_batch_of_one_is_a_single_query(kind: type[Workload[Any, Any]]):
    assert kind(batch=1).scenario == "single_stream"
    assert kind(batch=2).scenario == "offline"
    assert Bert().scenario == ""


def test_single_query_without_another_to_tell_it_from_is_refused():
    with pytest.raises(ParameterError, match="give 2 at least"):
        OnnxResnet50(batch=1, num_inputs=1)


def test_loss_of_learnable_text_falls(tmp_path: Path):
    workload = Bert(**{**Bert.small, "learning_rate": 1e-3, "num_inputs": 2})
    state = workload.build(on_processor(tmp_path), seed=5)
    losses = [workload.step(state).loss.item() for _ in range(30)]
    assert losses[-1] < losses[0] - 0.5


def test_masks_of_dropout_can_be_drawn_again(tmp_path: Path):
    root = Path(os.environ.get("BENCH_DATA", Path(__file__).parents[3] / "shared" / "datasets"))
    if not (root / "tinyshakespeare").is_dir():
        pytest.skip("needs the data set tinyshakespeare: set BENCH_DATA to its folder")
    small = {**CharLm.small, "batch": 4, "layers": 2, "num_steps": 9}
    workload = CharLm(**{**small, "dropout": 0.3})
    target = Target(device=torch.device("cpu"), artifacts=Artifacts(tmp_path), data=root)
    state = workload.build(target, seed=5)
    assert generator_of(state.training.model) is not None
    for _ in range(3):
        before = workload.snapshot(state)
        output = workload.step(state)
    checks = list(workload.check(before, state, output))
    assert [check.name for check in checks if not check.is_within] == []
    plain = CharLm(**small).build(target, seed=5)
    assert CharLm(**small).step(plain).loss.item() != output.loss.item()
