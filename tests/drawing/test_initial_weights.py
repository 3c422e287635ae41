"""First weights as a library's initialisers say, drawn by the generator where the model lies."""

import math
from collections.abc import Callable

import pytest
import torch
from support.device_draws import DeviceDraws, bytes_of
from torch import nn
from transformers import BertConfig, BertModel

from workloads.dinov2_giant import Dinov2Giant
from workloads.parts.drawing.drawn import HostDraws
from workloads.parts.drawing.initial_weights import initialized
from workloads.regnet_y_128gf import RegnetY128gf
from workloads.rlhf import Rlhf
from workloads.vjepa import Vjepa

HOST = torch.device("cpu")
SEED = 5
MODELS: dict[str, Callable[[], nn.Module]] = {
    "dinov2_giant": Dinov2Giant(**Dinov2Giant.small).network,
    "regnet_y_128gf": RegnetY128gf(**RegnetY128gf.small).network,
    "rlhf": Rlhf(**Rlhf.small)._scaled,
    "vjepa": Vjepa(**Vjepa.small).network,
}


@pytest.mark.parametrize("name", MODELS)
def test_weights_are_distributed_as_those_of_the_library(name: str) -> None:
    """Constants are the same; of numbers, mean and deviation are, as far as their number says."""
    drawn = dict(initialized(MODELS[name], HostDraws(seed=SEED), HOST).named_parameters())
    for key, parameter in MODELS[name]().named_parameters():
        ours, own = drawn[key].detach().double(), parameter.detach().double()
        if own.numel() == 1 or float(own.std()) == 0:
            assert torch.equal(ours, own) or own.numel() == 1, key
            continue
        allowed = 6 * float(own.std()) / math.sqrt(own.numel())
        assert abs(float(ours.mean() - own.mean())) < allowed, key
        assert abs(float(ours.std() - own.std())) < allowed, key


@pytest.mark.parametrize("name", MODELS)
def test_a_device_draws_the_weights_of_the_host(name: str) -> None:
    device = DeviceDraws(SEED)
    made = initialized(MODELS[name], device, HOST).state_dict()
    host = initialized(MODELS[name], HostDraws(seed=SEED), HOST).state_dict()
    assert {key: bytes_of(one) for key, one in made.items()} == {
        key: bytes_of(one) for key, one in host.items()
    }
    assert len(set(device.names)) == len(device.names)


class Model(nn.Module):
    """A layer and one more tensor, as `begin` leaves it."""

    def __init__(self, begin: Callable[[torch.Tensor], object]) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        nn.init.normal_(self.layer.weight, 1.0, 0.5)
        nn.init.constant_(self.layer.bias, 2.0)
        self.more = nn.Parameter(torch.ones(6, 4))
        begin(self.more.data)


def drawn(begin: Callable[[torch.Tensor], object]) -> Model:
    return initialized(lambda: Model(begin), HostDraws(seed=SEED), HOST)


def test_the_last_initialiser_counts_and_what_has_none_stays_a_constant() -> None:
    model = drawn(lambda _: None)
    assert torch.equal(model.layer.bias, torch.full((3,), 2.0))
    assert torch.equal(model.more, torch.ones(6, 4))
    assert 0 < float((model.layer.weight - 1).detach().abs().max()) < 0.5 * 4.2


def test_part_of_a_tensor_is_set_after_the_whole_was_drawn() -> None:
    def padded(tensor: torch.Tensor) -> None:
        nn.init.normal_(tensor)
        nn.init.zeros_(tensor[2])

    rows = drawn(padded).more.detach().abs().sum(dim=1)
    assert (rows == 0).tolist() == [False, False, True, False, False, False]


REFUSED: dict[str, tuple[Callable[[torch.Tensor], object], str]] = {
    "not around zero": (
        lambda one: nn.init.uniform_(one, 0, 1),
        "uniform_ that is not around zero is asked for",
    ),
    "orthogonal": (lambda one: nn.init.orthogonal_(one, 1), "orthogonal_ is asked for"),
    "cut off near its mean": (
        lambda one: nn.init.trunc_normal_(one, std=1.0),
        "trunc_normal_ within what is drawn is asked for",
    ),
    "written in place": (lambda one: one.mul_(3), "mul_ in place is asked for"),
    "a written part": (lambda one: one.zero_()[2:].add_(1), "of a part of it add_ in place is"),
    "drawn in place": (lambda one: one[2:].uniform_(), "no initialiser .* it is no constant"),
    "a drawn part": (lambda one: nn.init.normal_(one[:2]), "of a part of it normal is asked for"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_generator_does_not_draw_is_refused_by_name(name: str) -> None:
    begin, why = REFUSED[name]
    with pytest.raises(RuntimeError, match=f'how "more" begins cannot be drawn: {why}'):
        drawn(begin)


def test_numbers_of_no_initialiser_are_refused() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.own = nn.Parameter(torch.arange(3.0))

    with pytest.raises(RuntimeError, match=r'"own" begins cannot be drawn: .* it is no constant'):
        initialized(Own, HostDraws(seed=SEED), HOST)


def test_initialisers_are_torchs_own_again_also_after_an_error() -> None:
    def fails(tensor: torch.Tensor) -> None:
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        drawn(fails)
    torch.manual_seed(0)
    layer = nn.Linear(64, 64)
    assert 0 < float(layer.weight.detach().abs().max()) <= 1 / 8
    assert float(nn.init.normal_(torch.zeros(100)).std()) > 0.5


def test_initialisers_of_transformers_are_noted_too() -> None:
    config = BertConfig(
        vocab_size=50,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        initializer_range=0.3,
        pad_token_id=4,
    )
    model = initialized(lambda: BertModel(config), HostDraws(seed=SEED), HOST)
    words = model.embeddings.word_embeddings.weight.detach()
    assert abs(float(words.std()) - 0.3) < 0.05
    assert float(words[4].abs().sum()) == 0
    assert float(model.pooler.dense.bias.detach().abs().sum()) == 0
