"""Model operations at full size against closed forms, written out here from the architectures.

Counts are of 2mnk for a product, as `workloads/parts/numerics/size.py` states the rule.
"""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from workloads.bert import Bert
from workloads.gemm import Gemm
from workloads.parts.numerics.classifier import Result
from workloads.parts.numerics.size import (
    OperationCounter,
    count_inference_flops,
    count_training_flops,
)
from workloads.resnet50 import Resnet50

FORWARD_AND_BACKWARD = 3  # a product, and one for the gradient of each of its sides


def linear(rows: int, inputs: int, outputs: int) -> int:
    return 2 * rows * inputs * outputs


def attention(batch: int, length: int, width: int) -> int:
    """Scores and their sum of values: two products for each head, which add up to the width."""
    return batch * 2 * (2 * length * length * width)


def test_matrix_product_is_two_mnk() -> None:
    gemm = Gemm()
    assert gemm.work().flops == 2 * gemm.m * gemm.n * gemm.k


def test_bert_base_is_its_closed_form() -> None:
    batch, length, width, inner, layers, vocabulary = 32, 512, 768, 3072, 12, 30_522
    tokens = batch * length
    layer = 4 * linear(tokens, width, width) + 2 * linear(tokens, width, inner)
    head = linear(tokens, width, width) + linear(tokens, width, vocabulary)
    forward = layers * (layer + attention(batch, length, width)) + head
    assert Bert().work().flops == FORWARD_AND_BACKWARD * forward


@pytest.mark.parametrize(
    ("vocabulary", "inner", "key_heads"),
    [(32_000, 11_008, 32), (128_256, 14_336, 8)],
    ids=["Llama-2-7B", "Llama-3.1-8B"],
)
def test_llama_is_its_closed_form(vocabulary: int, inner: int, key_heads: int) -> None:
    width, layers, heads = 4096, 32, 32

    def model() -> LlamaForCausalLM:
        return LlamaForCausalLM(
            LlamaConfig(
                vocab_size=vocabulary,
                hidden_size=width,
                intermediate_size=inner,
                num_hidden_layers=layers,
                num_attention_heads=heads,
                num_key_value_heads=key_heads,
            )
        )

    batch, length = 2, 512
    tokens = batch * length
    of_keys = width * key_heads // heads
    layer = 2 * linear(tokens, width, width) + 2 * linear(tokens, width, of_keys)
    layer += 3 * linear(tokens, width, inner) + attention(batch, length, width)
    forward = layers * layer + linear(tokens, width, vocabulary)
    shapes = {"input_ids": (batch, length), "labels": (batch, length)}
    assert count_inference_flops(model, shapes) == forward
    assert count_training_flops(model, shapes) == FORWARD_AND_BACKWARD * forward


def convolution(side: int, kernel: int, inputs: int, outputs: int) -> int:
    """Of one image, `side` pixels wide after it."""
    return 2 * side * side * kernel * kernel * inputs * outputs


def bottleneck(inputs: int, outputs: int, side: int, stride: int) -> int:
    inner, after = outputs // 4, side // stride
    total = convolution(side, 1, inputs, inner) + convolution(after, 3, inner, inner)
    total += convolution(after, 1, inner, outputs)
    return total + (convolution(after, 1, inputs, outputs) if inputs != outputs else 0)


def test_resnet50_is_its_closed_form() -> None:
    stem = convolution(112, 7, 3, 64)
    rest, inputs, side = linear(1, 2048, 1000), 64, 56
    for outputs, blocks, stride in [(256, 3, 1), (512, 4, 2), (1024, 6, 2), (2048, 3, 2)]:
        rest += bottleneck(inputs, outputs, side, stride)
        side //= stride
        rest += (blocks - 1) * bottleneck(outputs, outputs, side, 1)
        inputs = outputs
    shapes = {"pixel_values": (1, 3, 224, 224)}
    assert count_inference_flops(Resnet50().network, shapes) == stem + rest
    # The images want no gradient.
    assert Resnet50().work().flops == 256 * (2 * stem + FORWARD_AND_BACKWARD * rest)


def test_frozen_weights_cost_no_gradient_of_their_own() -> None:
    class Half(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Linear(64, 32), torch.nn.Linear(32, 16)
            self.second.requires_grad_(requires_grad=False)

        def forward(self, labels: torch.Tensor) -> Result:
            values = torch.zeros(*labels.shape, 64, device=labels.device)
            logits = self.second(self.first(values))
            return Result(loss=logits.sum(), logits=logits)

    rows = 8
    first, second = linear(rows, 64, 32), linear(rows, 32, 16)
    assert count_training_flops(Half, {"labels": (rows,)}) == 2 * first + 2 * second


@pytest.mark.parametrize("groups", [1, 2, 192])
@pytest.mark.parametrize("kind", [torch.nn.Conv2d, torch.nn.ConvTranspose2d])
@pytest.mark.parametrize("wanted", [("images", "weights"), ("weights",), ("images",)])
def test_each_gradient_of_a_convolution_has_the_products_of_its_forward_pass(
    groups: int,
    kind: type[torch.nn.Conv2d | torch.nn.ConvTranspose2d],
    wanted: tuple[str, ...],
) -> None:
    """A formula of torch 2.8 to 2.13 counts the weights' gradient as often as there are groups."""
    channels, side, kernel = 192, 14, 3
    with torch.device("meta"):
        layer = kind(channels, channels, kernel, groups=groups, padding=1)
        layer.requires_grad_(requires_grad="weights" in wanted)
        images = torch.empty(2, channels, side, side, requires_grad="images" in wanted)
        with OperationCounter() as counter:
            torch.autograd.backward(layer(images).sum())
    forward = 2 * convolution(side, kernel, channels, channels) // groups
    assert counter.flops == (1 + len(wanted)) * forward
