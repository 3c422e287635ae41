"""What is special in the inference rows: counts, prompts, clips, denoising steps, formats.

Each fault is put into an output, a model or a file, and must be refused by the check that is there
for it; the true output must not be.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import onnx
import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler
from support.subjects import PROVIDER, SEED, Subject
from torch.export import ExportedProgram
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from appliance.vendors.torch_settings import choose_float32_products
from workloads.contract.failures import ParameterError
from workloads.contract.target import Artifacts, Target
from workloads.contract.workload import Workload
from workloads.llm_chat import SPECIAL, LlmChat
from workloads.onnx_bert import OnnxBert
from workloads.onnx_llama import OnnxLlama
from workloads.onnx_resnet50 import Served
from workloads.onnx_whisper import OnnxWhisper
from workloads.parts.diffusion import flux
from workloads.parts.drawing import drawn
from workloads.parts.drawing.drawn import HostDraws
from workloads.parts.drawing.weights import fill
from workloads.parts.drawing.weights import weight as weight_of
from workloads.parts.inference import redrawn
from workloads.parts.inference.exporter import export, without_normalisations
from workloads.parts.inference.onnx_inference import OnnxInference
from workloads.parts.inference.onnx_sessions import in_full, open_session, run
from workloads.parts.language.decoder import Shape, Stretch, _rotations, layer
from workloads.parts.vision.resnet import resnet
from workloads.text_to_image import TextToImage
from workloads.whisper_transcribe import WhisperTranscribe

pytestmark = pytest.mark.usefixtures("one_thread")


def small(kind: type[Workload[Any, Any]], **change: Any) -> Workload[Any, Any]:
    return kind(**{**kind.small, **change})


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    return Subject(small(TextToImage), tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    return Subject(small(LlmChat, new_tokens=6), tmp_path_factory.mktemp("chat"))


@pytest.fixture(scope="module")
def transcripts(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    workload = small(WhisperTranscribe, dtype="bfloat16", checked=2)
    return Subject(workload, tmp_path_factory.mktemp("transcripts"))


# ------------------------------------------------------------------ chat


def test_generated_tokens_alone_are_counted():
    one, two = LlmChat(prompt=64), LlmChat(prompt=512)
    assert one.work().units == two.work().units == one.new_tokens
    assert one.work().unit == "generated tokens"
    assert one.scenario == "single_stream"


def test_prompt_is_a_conversation_that_waits_for_an_answer(chat: Subject):
    prompt = chat.state.requests[0][0]
    first = 1000 - SPECIAL
    special = [token - first for token in prompt.tolist() if token >= first]
    assert special == [0, 6, 7, 9, 6, 7]
    assert len(prompt) == 32


def test_requests_are_drawn_alike_by_a_device_and_the_host(
    chat: Subject, images: Subject, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(drawn, "on_device", drawn.drawn_by_device)
    state = chat.build()
    for index, prompt in enumerate(state.requests):
        assert torch.equal(prompt, chat.workload.request(state, index))
    state = images.build()
    host, device = images.workload.snapshot(state).inputs, state.inputs[0]
    for name in ("words", "pieces", "noise"):
        assert torch.equal(getattr(host, name), getattr(device, name))


def test_a_prompt_that_is_spoilt_on_the_device_shows(chat: Subject):
    state = chat.build()
    before = chat.workload.snapshot(state)
    state.requests[0][0, 12] = (state.requests[0][0, 12] + 1) % 500
    checks = list(chat.workload.check(before, state, chat.workload.step(state)))
    assert "logits against float64" in {check.name for check in checks if not check.is_within}


@pytest.mark.parametrize("place", [1, 8, 9])
def test_no_token_that_ends_a_turn_is_generated_or_accepted(chat: Subject, place: int):
    end = 1000 - SPECIAL + place
    state = chat.build()
    with torch.no_grad():
        state.model.lm_head.weight[end] = 0
        state.model.lm_head.weight[end] = state.model.lm_head.weight.abs().amax(0)
    assert end not in chat.workload.step(state).tokens
    tokens = chat.output.tokens.clone()
    tokens[0, 3] = end
    name = "tokens that end a sequence too early"
    assert name in chat.outside(replace(chat.output, tokens=tokens))


def test_answer_with_a_token_less_is_refused(chat: Subject):
    short = replace(chat.output, tokens=chat.output.tokens[:, :-1])
    assert chat.outside(short) == {"tokens missing or too many"}
    assert chat.outside() == set()


def test_keys_of_another_head_are_refused(chat: Subject):
    """Queries share keys four by four; the wrong four would see other keys."""
    state = chat.build()
    attention = state.model.model.layers[0].self_attn
    with torch.no_grad():
        attention.k_proj.weight.copy_(attention.k_proj.weight.roll(32, dims=0))
    assert "logits against float64" in chat.outside(chat.workload.step(state))


def test_rotations_are_slowed_as_the_library_slows_them():
    stretch = Stretch(factor=8.0, low=1.0, high=4.0, original=8192)
    shape = Shape(
        vocabulary=8,
        hidden=256,
        intermediate=8,
        layers=1,
        heads=2,
        epsilon=1e-5,
        theta=500_000.0,
        stretch=stretch,
    )
    config = LlamaConfig(
        hidden_size=256,
        num_attention_heads=2,
        max_position_embeddings=131_072,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 500_000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    )
    cosines, sines = LlamaRotaryEmbedding(config)(torch.empty(0), torch.arange(300)[None])
    turns = _rotations(shape, 300)
    torch.testing.assert_close(turns.real, cosines[0, :, :64].double(), atol=1e-5, rtol=0)
    torch.testing.assert_close(turns.imag, sines[0, :, :64].double(), atol=1e-5, rtol=0)
    plain = _rotations(replace(shape, stretch=None), 300)
    assert (plain - turns).abs().max() > 0.1


# ------------------------------------------------------------------ transcripts


def test_transcript_of_another_clip_is_refused_in_bfloat16(transcripts: Subject):
    """A swapped clip shows in logits and, as the decoder listens, beyond its rounding."""
    assert transcripts.outside() == set()
    true = transcripts.output
    swapped = replace(true, tokens=true.tokens.flip(0), logits=true.logits.flip(0))
    assert "logits against float64" in transcripts.outside(swapped)


def test_stale_encoding_is_refused(transcripts: Subject):
    """The tokens' own cache is right, and the clip heard is that of the step before."""
    workload, state = transcripts.workload, transcripts.build()
    before = workload.snapshot(state)
    state.cycle.number += 1
    output = workload.step(state)
    result = {check.name for check in workload.check(before, state, output) if not check.is_within}
    assert "logits against float64" in result


def test_all_clips_of_the_first_step_are_compared_and_a_few_of_others(transcripts: Subject):
    chosen = [transcripts.workload._chosen(number, SEED) for number in range(30)]
    assert chosen[0] == [0, 1, 2, 3]
    assert {len(some) for some in chosen[1:]} == {2}
    assert {clip for some in chosen[1:] for clip in some} == {0, 1, 2, 3}


def test_clips_are_counted_and_not_their_tokens():
    work = WhisperTranscribe().work()
    assert (work.units, work.unit) == (64, "clips")
    assert WhisperTranscribe(new_tokens=128).work().units == 64


# ------------------------------------------------------------------ images


def test_images_are_counted_and_not_their_denoising_steps():
    workloads = [small(TextToImage, denoising_steps=steps) for steps in (2, 4, 6)]
    first, second, third = (workload.work() for workload in workloads)
    assert first.units == second.units == 2
    assert first.unit == "images"
    assert first.flops is not None
    assert second.flops is not None
    assert third.flops is not None
    assert third.flops - second.flops == second.flops - first.flops > 0


def test_schedule_is_that_of_the_library():
    for steps, tokens in ((4, 16), (50, 256), (28, 4096)):
        shift = 0.5 + (tokens - 256) * (1.15 - 0.5) / (4096 - 256)
        scheduler = FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True)
        even = [1 - number / steps for number in range(steps)]
        scheduler.set_timesteps(sigmas=even, mu=shift)
        expected = scheduler.sigmas.double()
        result = torch.tensor(flux.schedule(steps, tokens), dtype=torch.float64)
        torch.testing.assert_close(result, expected, atol=1e-6, rtol=0)
        assert math.isclose(result[0].item(), 1.0)


PATH = "latents against the ones before and their velocities"


def test_skipped_and_repeated_denoising_steps_are_refused(images: Subject):
    true = images.output
    assert images.outside() == set()
    skipped = true.latents.clone()
    skipped[2:] -= true.latents[2] - true.latents[1]
    assert PATH in images.outside(replace(true, latents=skipped))
    repeated = true.velocities.clone()
    repeated[1] = true.velocities[0]
    assert {PATH, "velocities against float64"} <= images.outside(
        replace(true, velocities=repeated)
    )


def test_prompt_that_is_not_read_is_refused(images: Subject):
    """The transformer is given the states of one prompt for all images."""
    state = images.build()
    real = state.networks.transformer.forward

    def deaf(**given: Any) -> Any:
        given["encoder_hidden_states"] = torch.zeros_like(given["encoder_hidden_states"])
        given["pooled_projections"] = torch.zeros_like(given["pooled_projections"])
        return real(**given)

    state.networks.transformer.forward = deaf
    assert images.outside(images.workload.step(state)) >= {"velocities against float64"}


def test_constant_images_are_refused(images: Subject):
    flat = torch.ones_like(images.output.images)
    assert "images have many colours" in images.outside(replace(images.output, images=flat))


def test_first_and_last_denoising_step_are_always_recomputed():
    workload = small(TextToImage, denoising_steps=7, checked=4)
    assert isinstance(workload, TextToImage)
    seen = set()
    for number in range(60):
        pairs = workload._pairs(number, SEED)
        assert len(set(pairs)) == 4
        assert pairs[0][0] == 0
        assert pairs[-1][0] == 6
        seen |= set(pairs)
    assert seen == {(step, image) for step in range(7) for image in range(2)}


def test_streamed_model_is_the_whole_model_and_leaves_no_weights():
    workload = small(TextToImage)
    assert isinstance(workload, TextToImage)
    sizes = workload._sizes()
    whole = redrawn.moved_empty(_on_meta(sizes), torch.device("cpu"))
    fill(whole, HostDraws(seed=SEED), prefix="t5 ")
    streamed = redrawn.streamed(sizes.t5, HostDraws(seed=SEED), dtype=torch.float32, prefix="t5 ")
    tokens = torch.arange(8)[None] + 3
    with torch.no_grad():
        result = streamed(input_ids=tokens).last_hidden_state
        expected = whole.double()(input_ids=tokens).last_hidden_state
    torch.testing.assert_close(result, expected)
    assert {weight.device.type for weight in streamed.parameters()} == {"meta"}


def _on_meta(sizes: flux.Sizes) -> torch.nn.Module:
    with torch.device("meta"):
        return sizes.t5().eval()


# ------------------------------------------------------------------ ONNX


@pytest.mark.parametrize("kind", [OnnxBert, OnnxWhisper, OnnxLlama])
def test_answers_in_a_lower_precision_or_of_another_provider_are_refused(
    kind: type[Workload[Any, Any]], tmp_path: Path
):
    workload = small(kind)
    subject = Subject(workload, tmp_path / "float32")
    lower = Subject(small(kind, dtype="float16"), tmp_path / "float16")
    assert lower.outside() == set()
    assert subject.outside() == set()
    assert "logits against float64" in subject.outside(lower.output.astype("float32"))
    subject.state = replace(subject.state, asked_for="AnotherExecutionProvider")
    assert subject.outside() == {
        "nodes that ran on another provider",
        "provider that runs is not the one asked for",
    }


@pytest.fixture
def put_back() -> Iterator[None]:
    yield
    choose_float32_products("cuda", in_tf32=False)


@pytest.mark.usefixtures("put_back")
@pytest.mark.parametrize("in_tf32", [True, False], ids=["tf32", "full"])
@pytest.mark.parametrize("kind", [OnnxBert, OnnxLlama, OnnxWhisper])
def test_network_is_exported_whatever_products_torch_makes(
    kind: type[OnnxInference],
    in_tf32: bool,  # noqa: FBT001 - a row of the table
    tmp_path: Path,
):
    """Torch's exporter reads its older switches, which raise where newer ones say otherwise."""
    choose_float32_products("cuda", in_tf32=in_tf32)
    workload = kind(**kind.small)
    network, inputs = workload.filled(SEED), workload.inputs(HostDraws(seed=SEED), 0)
    export(network, inputs, "answer", tmp_path / "network.onnx")
    session = open_session(tmp_path / "network.onnx", (PROVIDER,))
    answer = run(session, {name: value.numpy() for name, value in inputs.items()})
    with torch.no_grad():
        expected = network(**inputs)
    torch.testing.assert_close(torch.from_numpy(answer), expected, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_merged_normalisations_leave_the_network_as_it_was(dtype: torch.dtype) -> None:
    torch.manual_seed(SEED)
    network = resnet((1, 1, 1, 1), width=8).to(dtype).eval()
    norms = [one for one in network.modules() if isinstance(one, torch.nn.BatchNorm2d)]
    for norm in norms:  # as after a training, each channel its own
        for tensor, low in ((norm.weight, 0.5), (norm.bias, -1), (norm.running_mean, -1)):
            assert tensor is not None
            torch.nn.init.uniform_(tensor, low, low + 2)
        assert norm.running_var is not None
        torch.nn.init.uniform_(norm.running_var, 0.5, 2)
    merged = without_normalisations(network, dtype)
    assert {one.dtype for one in merged.parameters()} == {dtype}
    assert not any(isinstance(one, torch.nn.BatchNorm2d) for one in merged.modules())
    assert len(norms) == sum(isinstance(one, torch.nn.BatchNorm2d) for one in network.modules())
    images = torch.randn(2, 3, 64, 64).double()
    with torch.no_grad():
        expected, logits = (one.double()(pixel_values=images).logits for one in (network, merged))
    error = (logits - expected).norm() / expected.norm()
    assert 0 < error < 8 * torch.finfo(dtype).eps  # weights are rounded once more


class AsItIs(torch.nn.Module):
    """The network as it adds and pools by itself."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.network(pixel_values=images).logits
        return logits


def wiring(path: Path) -> list[tuple[object, ...]]:
    """Each node of a file: its kind, its attributes, and what it reads, but for names.

    What a 0 in the shape of a Reshape means (`allowzero`) is left out, as none of them has one.
    """
    graph = onnx.load(path).graph
    known: dict[str, object] = {one.name: index for index, one in enumerate(graph.input)}
    known |= {one.name: (tuple(one.dims), one.raw_data) for one in graph.initializer}
    nodes: list[tuple[object, ...]] = []
    for node in graph.node:
        attributes = sorted(str(one) for one in node.attribute if one.name != "allowzero")
        nodes.append((node.op_type, attributes, [known[name] for name in node.input]))
        known |= {name: (len(nodes), index) for index, name in enumerate(node.output)}
    return nodes


def test_network_that_adds_into_new_tensors_is_exported_as_it_is_and_not_traced_again(
    tmp_path: Path,
) -> None:
    """What changes tensors has to be taken apart by tracing all once more, at half of the time."""
    torch.manual_seed(SEED)
    network = without_normalisations(resnet((1, 2, 1, 1), width=8).eval(), torch.float32)
    traced, found = [], []
    for kind in (AsItIs, Served):
        path = tmp_path / f"{kind.__name__}.onnx"
        with mock.patch.object(
            ExportedProgram,
            "run_decompositions",
            autospec=True,
            side_effect=ExportedProgram.run_decompositions,
        ) as apart:
            export(kind(network), {"images": torch.zeros(2, 3, 64, 64)}, "logits", path)
        traced.append(apart.call_count)
        found.append(wiring(path))
    assert traced == [1, 0]
    assert found[0] == found[1]
    assert [kind for kind, *_ in found[0]].count("Add") == 5


class FakeSession:
    """A session on a provider with options of its own."""

    def __init__(self, **options: str) -> None:
        self.options = options
        self.changes: list[object] = []

    def get_providers(self) -> list[str]:
        return ["AnExecutionProvider", "CPUExecutionProvider"]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        return {"AnExecutionProvider": self.options}

    def set_providers(self, names: list[str], options: list[dict[str, str]]) -> None:
        self.changes.append((names, options))


def test_provider_that_shortens_float32_unasked_is_told_not_to():
    short = FakeSession(use_tf32="1", device_id="0")
    assert in_full(short) is short
    assert short.changes == [(["AnExecutionProvider"], [{"use_tf32": "0"}])]
    for other in (FakeSession(use_tf32="0"), FakeSession(device_id="0")):
        assert in_full(other).changes == []


def test_word_that_float64_would_not_choose_is_refused(tmp_path: Path):
    subject = Subject(small(OnnxBert), tmp_path)
    wrong = subject.output.copy()
    wrong[0, int(wrong[0].argmin())] = 2 * wrong[0].max()
    assert "words that float64 would not choose" in subject.outside(wrong)


def test_block_is_that_of_the_independent_decoder(tmp_path: Path):
    """The reference of the block is the library's; this one shares no code with it."""
    workload = small(OnnxLlama)
    assert isinstance(workload, OnnxLlama)
    subject = Subject(workload, tmp_path)
    shape = Shape(
        vocabulary=8,
        hidden=workload.hidden,
        intermediate=workload.intermediate,
        layers=1,
        heads=workload.heads,
        epsilon=1e-5,
        theta=500_000.0,
        shared_heads=workload.shared_heads,
        stretch=Stretch(factor=8.0, low=1.0, high=4.0, original=8192),
    )

    def weight(name: str, *sizes: int) -> torch.Tensor:
        return weight_of(HostDraws(seed=SEED), name, sizes, torch.float32).double()

    hidden = torch.from_numpy(subject.state.inputs[0]["hidden"]).double()
    expected = layer(shape, weight, hidden, "layer")
    torch.testing.assert_close(subject.state.reference[0], expected, atol=1e-5, rtol=1e-5)


def test_network_that_one_file_cannot_hold_is_refused(tmp_path: Path):
    target = Target(
        device=torch.device("cpu"), artifacts=Artifacts(tmp_path), onnx_providers=(PROVIDER,)
    )
    with pytest.raises(ParameterError, match="dtype is float32"):
        OnnxWhisper(dtype="float32").build(target, SEED)
