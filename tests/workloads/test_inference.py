"""Inference is judged by what it means: classes, divergence, perplexity, token counts.

Each fault is put into an output, a model or a profile, and must be refused; each true output,
of every format, must not be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from support.subjects import Subject

from workloads.contract.failures import ParameterError
from workloads.llama import END, Llama
from workloads.llm_agreement import LlmAgreement
from workloads.onnx_resnet50 import OnnxResnet50
from workloads.parts.datasets.sentences import Sentences
from workloads.parts.inference import onnx_sessions
from workloads.parts.inference.onnx_sessions import nodes_of
from workloads.parts.language.divergence import Comparison, compare_distributions, divergence

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    return Subject(OnnxResnet50(**OnnxResnet50.small), tmp_path_factory.mktemp("onnx"))


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    workload = Llama(**{**Llama.small, "new_tokens": 6, "layers": 2, "batch": 2})
    return Subject(workload, tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Subject]:
    """One model and its texts, in all formats."""
    folder = tmp_path_factory.mktemp("llm")
    return {
        dtype: Subject(
            LlmAgreement(**{**LlmAgreement.small, "texts": 64, "dtype": dtype}), folder / dtype
        )
        for dtype in ("float32", "bfloat16", "float16")
    }


def flip(values: torch.Tensor, place: int, bit: int) -> torch.Tensor:
    """The values with one bit of one of them flipped."""
    wrong = values.clone()
    words = wrong.view({2: torch.int16, 4: torch.int32}[values.element_size()]).reshape(-1)
    words[place] ^= (
        1 << bit if bit < 8 * values.element_size() - 1 else torch.iinfo(words.dtype).min
    )
    return wrong


def lowest_bit(value: float, least: float, dtype: torch.dtype) -> int:
    """The lowest bit whose flip moves a value of this format by more than `least`."""
    one = torch.tensor([value], dtype=dtype)
    for bit in range(8 * one.element_size()):
        moved = (flip(one, 0, bit).double() - one.double()).abs().item()
        if least < moved < float("inf"):
            return bit
    raise AssertionError("no bit can be seen")


# ------------------------------------------------------------------ classification


SPOILT_LOGITS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "NaN": lambda true: np.full_like(true, np.nan),
    "zeros": np.zeros_like,
    "permuted batch": lambda true: true[[1, 0, *range(2, len(true))]],
    "shifted batch": lambda true: np.roll(true, 1, axis=0),
    "truncated": lambda true: true[:-1],
    "scaled": lambda true: true * np.float32(1 + 1e-5),
}


@pytest.mark.parametrize("name", SPOILT_LOGITS)
def test_spoilt_logits_are_refused(served: Subject, name: str):
    assert served.outside() == set()
    assert served.outside(SPOILT_LOGITS[name](served.output))


def test_every_way_of_judging_logits_sees_its_own_fault(served: Subject):
    true = served.output
    rng = np.random.default_rng(1)
    noise = rng.standard_normal(true.shape).astype(np.float32)
    size = float(np.sqrt(np.mean(true**2)))
    noisy = served.outside(true + noise * np.float32(5e-6 * size))  # below the worst logit's bound
    assert noisy == {"error over that of a processor in the same format"}
    assert "angle between an image's logits and float64's" in served.outside(true[::-1].copy())
    swapped = true.copy()
    first, second = np.argsort(true[0])[[-1, -2]]
    swapped[0, [first, second]] = true[0, [second, first]]
    assert "classes that float64 would not choose" in served.outside(swapped)


def test_flipped_bit_of_a_logit_is_refused_down_to_what_the_check_says(served: Subject):
    true = torch.from_numpy(served.output)
    check = next(c for c in served.checks() if c.name == "logits against float64")
    size = served.state.reference[0].square().mean().sqrt().item()
    place = int(true.abs().argmax())
    assert check.detects is not None
    bit = lowest_bit(true.reshape(-1)[place].item(), 2 * check.detects * size, torch.float32)
    for each in (31, 30, (bit + 23) // 2, bit):
        assert check.name in served.outside(flip(true, place, each).numpy())
    assert bit < 12


def test_classes_of_more_images_are_those_of_float64_or_it_fails(served: Subject):
    """Only the first step asks; a class that differs where nothing is close is counted."""
    state, right = served.state, served.state.classify()
    wrong = right.clone()
    wrong[3] = (wrong[3] + 1) % 16
    served.state = replace(state, classify=lambda: wrong)
    try:
        assert served.outside() == {
            "share of images with another class than float64's",
            "other classes where float64's lead is decisive",
        }
        served.state = replace(state, classify=lambda: torch.full_like(right, -1))
        assert "share of images with another class than float64's" in served.outside()
    finally:
        served.state = state


def test_reference_has_many_classes_with_decisive_leads(served: Subject):
    """Were it not so, agreement of classes would be an empty word."""
    reference = served.state.more_reference
    first, second = reference.topk(2, dim=1).values.unbind(1)
    assert reference.argmax(1).unique().numel() >= 10
    assert (first - second > 0.01 * first).double().mean() > 0.9


def test_node_on_another_provider_and_an_empty_profile_are_refused(served: Subject):
    state, nodes = served.state, served.state.profile()
    name = "nodes that ran on another provider"
    try:
        for wrong in (
            nodes + type(nodes)({("AnotherExecutionProvider", "Conv"): 1}),
            type(nodes)(),
        ):
            served.state = replace(state, profile=lambda wrong=wrong: wrong)
            assert served.outside() == {name}
        served.state = replace(state, asked_for="AnotherExecutionProvider")
        assert served.outside() == {name, "provider that runs is not the one asked for"}
    finally:
        served.state = state


def test_profile_is_counted_by_provider_and_the_optimisation_is_recorded(served: Subject):
    events = [
        {"cat": "Session", "name": "model_run", "args": {}},
        {"cat": "Node", "name": "a_fence_before", "args": {}},
        {"cat": "Node", "name": "a_kernel_time", "args": {"provider": "P", "op_name": "Conv"}},
        {"cat": "Node", "name": "b_kernel_time", "args": {"provider": "Q", "op_name": "Gemm"}},
        {"cat": "Node", "name": "c_kernel_time", "args": {"provider": "P", "op_name": "Conv"}},
    ]
    assert nodes_of(events) == {("P", "Conv"): 2, ("Q", "Gemm"): 1}
    check = next(c for c in served.checks() if c.name == "nodes that ran on another provider")
    assert "ORT_ENABLE_ALL: 29 Conv, 1 Gemm" in check.detects_what


def test_session_waits_without_spinning(served: Subject):
    options = served.state.session.get_session_options()
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"


def test_weights_in_a_lower_precision_are_refused(served: Subject, tmp_path: Path):
    """Served from bfloat16 weights and images, in float32 arithmetic."""
    images = served.state.images
    lower = [torch.from_numpy(some).bfloat16().float().numpy() for some in images]
    state = replace(served.state, images=lower, cycle=replace(served.state.cycle, number=-1))
    output = served.workload.step(state)
    assert served.outside(output) >= {
        "logits against float64",
        "error over that of a processor in the same format",
    }


def test_format_that_is_not_served_is_refused():
    with pytest.raises(ParameterError, match="bfloat16"):
        OnnxResnet50(dtype="bfloat16")


# ------------------------------------------------------------------ generation


def test_token_counts_and_the_end_of_sequence_are_checked(llama: Subject):
    true = llama.output
    assert llama.outside() == set()
    assert END not in true.tokens
    for wrong in (
        replace(true, tokens=true.tokens[:, :-1]),
        replace(true, tokens=torch.cat((true.tokens, true.tokens[:, :1]), dim=1)),
        replace(true, tokens=true.tokens.reshape(-1)),
        replace(true, logits=true.logits[:, :-1]),
        replace(true, tokens=true.tokens[:1]),
    ):
        assert llama.outside(wrong) == {"tokens missing or too many"}
    ended = true.tokens.clone()
    ended[1, 3] = END
    assert "tokens that end a sequence too early" in llama.outside(replace(true, tokens=ended))


def test_brief_generation_is_the_beginning_of_the_whole(llama: Subject):
    """By the same state: repeated inputs are compared in it where whole steps take long."""
    state = llama.build()
    brief, words = replace(llama.workload, new_tokens=100).briefly(0.01)
    assert words == "generates 8 of the 100 tokens after the same prompts"
    first = brief.step(state).tokens
    assert torch.equal(first[:, :6], llama.output.tokens)
    brief.repeat_input(state)
    assert torch.equal(brief.step(state).tokens, first)
    assert not torch.equal(brief.step(state).tokens, first)


def test_sequence_does_not_end_though_its_end_is_likeliest(llama: Subject):
    """The head is made to prefer the end of sequence; what is generated keeps its length."""
    state = llama.build()
    with torch.no_grad():
        chosen = llama.output.tokens[0, 0]
        state.model.lm_head.weight[END] = 10 * state.model.lm_head.weight[chosen]
        state.bar.zero_()
    ends = llama.workload.step(state).tokens
    assert END in ends
    state.cycle.number = -1
    state.bar[END] = -torch.inf
    assert END not in llama.workload.step(state).tokens


def test_wrong_token_and_a_permuted_batch_are_refused(llama: Subject):
    true = llama.output
    other = true.tokens.clone()
    other[0, 2] = (other[0, 2] + 1) % 1000
    assert "tokens that are not the largest logit" in llama.outside(replace(true, tokens=other))
    swapped = replace(true, tokens=true.tokens.flip(0), logits=true.logits.flip(0))
    assert "logits against float64" in llama.outside(swapped)


# ------------------------------------------------------------------ agreement of language models


DTYPES = ("float32", "bfloat16", "float16")


@pytest.mark.parametrize("dtype", DTYPES)
def test_true_scores_are_within_every_bound(
    scored: Mapping[str, Subject], dtype: str, record_property: Callable[[str, object], None]
):
    checks = scored[dtype].checks()
    assert {check.name for check in checks if not check.is_within} == set()
    for check in checks:
        record_property(check.name, check.error / check.bound if check.bound else 0.0)


SPOILT_SCORES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "NaN": lambda true: torch.full_like(true, torch.nan),
    "zeros": torch.zeros_like,
    "permuted batch": lambda true: true.flip(0),
    "one position late": lambda true: true.roll(1, dims=1),
    "swapped class": lambda true: torch.cat((true[..., 1:2], true[..., :1], true[..., 2:]), dim=-1),
    "scaled": lambda true: true * 1.01,
    "truncated": lambda true: true[:, :-1],
    "missing text": lambda true: true[1:],
}


@pytest.mark.parametrize("name", SPOILT_SCORES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_spoilt_scores_are_refused(scored: Mapping[str, Subject], dtype: str, name: str):
    subject = scored[dtype]
    logits = SPOILT_SCORES[name](subject.output.logits)
    assert subject.outside(replace(subject.output, logits=logits, tops=logits.argmax(-1)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_stale_scores_and_a_wrong_token_are_refused(scored: Mapping[str, Subject], dtype: str):
    subject = scored[dtype]
    state = subject.build()
    subject.workload.step(state)
    assert "logits against float64" in subject.outside(subject.workload.step(state))
    tops = subject.output.tops.clone()
    tops[3, 7] += 1
    name = "tokens that are not the largest logit"
    assert subject.outside(replace(subject.output, tops=tops)) == {name}


@pytest.mark.parametrize("dtype", DTYPES)
def test_flipped_bit_of_a_score_is_refused_down_to_what_the_check_says(
    scored: Mapping[str, Subject], dtype: str
):
    subject = scored[dtype]
    true = subject.output.logits
    check = next(c for c in subject.checks() if c.name == "logits against float64")
    assert check.detects is not None
    exact, _ = subject.workload._references(subject.state)
    size = exact.square().mean().sqrt().item()
    place = int(true.abs().argmax())
    least = 2 * check.detects * size
    bit = lowest_bit(true.reshape(-1)[place].item(), least, true.dtype)
    highest = 8 * true.element_size() - 1
    for each in (highest, (bit + highest) // 2, bit):
        logits = flip(true, place, each)
        assert check.name in subject.outside(replace(subject.output, logits=logits))


@pytest.mark.parametrize(
    ("dtype", "lower"),
    [
        ("float32", torch.bfloat16),
        ("float32", torch.float16),
        ("bfloat16", torch.float8_e4m3fn),
        ("float16", torch.float8_e4m3fn),
        ("float16", torch.bfloat16),
    ],
)
def test_weights_of_a_lower_precision_are_refused_by_the_divergence(
    scored: Mapping[str, Subject], dtype: str, lower: torch.dtype
):
    subject = scored[dtype]
    state = subject.build()
    with torch.no_grad():
        for weight in state.model.parameters():
            weight.copy_(weight.to(lower).to(weight.dtype))
    assert "mean divergence from float64" in subject.outside(subject.workload.step(state))


def test_model_without_its_second_token_is_refused(scored: Mapping[str, Subject]):
    """No head of the first layer mixes positions: what attention is for is seen."""
    subject = scored["bfloat16"]
    state = subject.build()
    with torch.no_grad():
        state.model.model.layers[0].self_attn.o_proj.weight.zero_()
    assert subject.outside(subject.workload.step(state)) >= {
        "mean divergence from float64",
        "mean log of the perplexity ratio",
        "share of tokens with another likeliest successor",
        "other likeliest successors where float64's lead is decisive",
    }


def test_untrained_model_proves_nothing_and_is_refused(tmp_path: Path):
    workload = LlmAgreement(**{**LlmAgreement.small, "train_steps": 1, "texts": 16})
    assert "loss in float64 over the best possible" in Subject(workload, tmp_path).outside()


# ------------------------------------------------------------------ divergence


def test_divergence_is_that_of_its_definition():
    rng = torch.Generator().manual_seed(1)
    logits, exact = torch.randn(2, 3, 4, 5, generator=rng, dtype=torch.float64)
    expected = torch.nn.functional.kl_div(
        exact.log_softmax(-1), logits.log_softmax(-1), reduction="none", log_target=True
    ).sum(-1)
    torch.testing.assert_close(divergence(logits, exact), expected)


def test_divergence_of_float32_errors_is_not_lost_in_rounding():
    rng = torch.Generator().manual_seed(1)
    exact = torch.randn(4, 16, generator=rng, dtype=torch.float64)
    error = 1e-8 * torch.randn(4, 16, generator=rng, dtype=torch.float64)
    chances = exact.softmax(-1)
    mean = (chances * error).sum(-1, keepdim=True)
    variance = (chances * (error - mean) ** 2).sum(-1)
    torch.testing.assert_close(divergence(exact + error, exact), variance / 2, rtol=1e-4, atol=0)


def test_sixteen_bits_have_a_cap_whatever_a_processor_makes():
    """A processor as bad as the device excuses nothing."""
    rng = torch.Generator().manual_seed(1)
    exact = 3 * torch.randn(8, 64, 32, generator=rng, dtype=torch.float64)
    bad = exact + 0.2 * torch.randn(exact.shape, generator=rng, dtype=torch.float64)
    compared = Comparison(
        output=bad,
        exact=exact,
        processor=bad,
        targets=exact.argmax(-1),
        dtype=torch.bfloat16,
    )
    names = {c.name for c in compare_distributions(compared) if not c.is_within}
    assert names == {
        "mean divergence from float64",
        "mean log of the perplexity ratio",
        "share of tokens with another likeliest successor",
    }


def test_sentences_follow_their_table():
    language = Sentences(1, vocabulary=4)
    texts = language.draw(2000, 8)
    older, newer, last = (texts[:, place : place + 6].reshape(-1) for place in range(3))
    counts = torch.zeros(4, 4, 4).index_put_(
        (older, newer, last), torch.tensor(1.0), accumulate=True
    )
    rows = counts.sum(-1, keepdim=True)
    error = (counts / rows - language.chance).abs() / (language.chance / rows).sqrt().clamp(
        min=0.01
    )
    assert rows.min() > 50
    assert error.max() < 6
    result = language.log_chances(texts)[:, 1:].reshape(-1)
    torch.testing.assert_close(result, language.chance[older, newer, last].log())


@pytest.fixture
def served_file(tmp_path: Path) -> Path:
    file = tmp_path / "model.onnx"
    sizes = [onnx.helper.make_tensor_value_info(name, 1, [3]) for name in ("x", "y")]
    node = onnx.helper.make_node("Exp", ["x"], ["y"])
    graph = onnx.helper.make_graph([node], "one", sizes[:1], sizes[1:])
    opset = [onnx.helper.make_opsetid("", 18)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=10), file)
    return file


def test_a_provider_that_is_a_plugin_is_opened_by_its_device(
    served_file: Path, monkeypatch: pytest.MonkeyPatch
):
    """The processor's own provider stands for the plugin: it too is told as a device."""
    (device,) = onnx_sessions.plugged(onnx_sessions.ON_HOST)
    assert onnx_sessions.plugged("NoSuchProvider") == []
    monkeypatch.setattr(
        onnx_sessions, "plugged", lambda name: [device] if name == "Plugged" else []
    )
    session = onnx_sessions.open_on(served_file, onnx_sessions.session_options(), device)
    inputs = {session.get_inputs()[0].name: np.ones(3, np.float32)}
    direct = onnx_sessions.open_session(served_file, (onnx_sessions.ON_HOST,))
    assert np.array_equal(onnx_sessions.run(session, inputs), onnx_sessions.run(direct, inputs))
    with pytest.raises(Exception, match=r"(?i)fallback|disable_cpu_ep"):
        onnx_sessions.open_session(served_file, ("Plugged", onnx_sessions.ON_HOST))


def test_a_provider_is_opened_with_what_the_vendor_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """OpenVINO would compute on the processors, or float32 in float16, where nobody says."""
    chosen: list[object] = []

    class Session:
        def __init__(self, *_: object, providers: list[object]) -> None:
            chosen.extend(providers)

        def get_providers(self) -> list[str]:
            return ["AnExecutionProvider"]

        def get_provider_options(self) -> dict[str, dict[str, str]]:
            return {"AnExecutionProvider": {}}

    named = lambda: ["AnExecutionProvider", onnx_sessions.ON_HOST]  # noqa: E731
    monkeypatch.setattr(onnx_sessions.onnxruntime, "get_available_providers", named)
    monkeypatch.setattr(onnx_sessions.onnxruntime, "InferenceSession", Session)
    given = {"device_type": "GPU", "precision": "FP32"}
    onnx_sessions.open_session(tmp_path, named(), opened_with=given)
    assert chosen == [("AnExecutionProvider", given)]


@pytest.mark.parametrize(
    ("given", "words"),
    [({}, "ALL: 2 Exp"), ({"precision": "FP32"}, "ALL with precision=FP32: 2 Exp")],
)
def test_what_a_provider_was_opened_with_is_recorded(
    served_file: Path, given: dict[str, str], words: str
):
    session = onnx_sessions.open_session(served_file, (onnx_sessions.ON_HOST,))
    nodes = onnx_sessions.Nodes({(onnx_sessions.ON_HOST, "Exp"): 2})
    *_, last = onnx_sessions.check_providers(session, onnx_sessions.ON_HOST, nodes, given)
    assert words in last.detects_what
