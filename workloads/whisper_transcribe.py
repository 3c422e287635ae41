"""Whisper that writes down what it hears: an encoder over 30 seconds, then a token at a time.

One step encodes a batch of clips and generates `new_tokens` tokens for each, greedily: every token
reads the cache of those before, and the encoded clip through a cache of its own. Weights and the
spectrograms of melodies (`parts/datasets/melodies.py`) are drawn on the device before the first
step. Clips are what is counted; each is transcribed once, to its full length.

The check feeds the generated tokens to the same class in float64, in one pass without any cache,
from weights and spectrograms drawn again from the seed, and compares the logits of every generated
position: of all clips of the first step, and of `checked` clips, drawn by the seed and the number
of the step, of the others that are asked for. Tokens of all clips are held against the device's own
logits, and counted (`parts/language/generated.py`). A stale cache, a clip of another request, a
missing token and a product in a lower precision would each be seen. In float64 the logits must also
change with the clip. Some weights are drawn larger than would keep signals' size: those of the
decoder's attention to the clip, so that it listens to some moments more than to others, and those
of the first convolution, since positions would drown what is heard. Without that another clip
changed 3 % of the logits' size, with it 18 %, of 50 places as of 400.

Healthy errors reach at most 0.3 of their bounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from transformers import (
    DynamicCache,
    EncoderDecoderCache,
    WhisperConfig,
    WhisperForConditionalGeneration,
)
from transformers.initialization import no_init_weights
from transformers.models.whisper.modeling_whisper import sinusoids

from appliance.records.journal import Check
from appliance.records.json import Parameters
from appliance.records.suite import Scenario
from appliance.records.workload import Work
from workloads.contract.failures import ParameterError
from workloads.contract.input_cycle import InputCycle
from workloads.contract.target import Target
from workloads.parts.datasets.melodies import drawn_songs, drawn_spectrograms
from workloads.parts.drawing.drawn import Drawer, Draws, HostDraws
from workloads.parts.drawing.weights import fill
from workloads.parts.language.generated import (
    Generated,
    Tensors,
    bar,
    compare_choices,
    generate,
    known,
)
from workloads.parts.language.generation import Asked, Before, Generation
from workloads.parts.numerics.parameters import require_even_heads, require_positive
from workloads.parts.numerics.precision import LEAST_SHARE, compare_logits, dtype_named
from workloads.parts.numerics.size import count_flops, count_parameters

LOGITS = 40.0
GAINS = {
    "encoder_attn.q_proj.weight": 3.0,
    "encoder_attn.out_proj.weight": 2.0,
    "conv1.weight": 3.0,
}
NOT_REDRAWN = ("encoder.embed_positions.weight",)
"""A table of sines that the library computes."""
SPECIAL = 1609
"""Tokens at the end of the vocabulary, from the one that ends a transcript on."""
FORMAT = (1, 2, 103, 107)
"""Of a transcript in English without times, by their place among the special tokens."""
CLASSES = 16
"""Different melodies."""
AT_ONCE = 4
"""Clips of one pass in float64: their activations must fit into the host's memory."""


@dataclass(kw_only=True)
class State(Asked):
    """`requests` are spectrograms (clip, bin, frame); `opening` tokens, the same of every clip."""

    model: WhisperForConditionalGeneration
    opening: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class WhisperTranscribe(Generation[State]):
    """`positions` is the number of places that the encoder attends to, 50 for each second."""

    summary: ClassVar[str] = "Whisper-large-v3 shape, greedy transcription with a cache"
    version: ClassVar[int] = 2
    small: ClassVar[Parameters] = {
        "batch": 4,
        "positions": 50,
        "bins": 40,
        "vocabulary": 2000,
        "hidden": 64,
        "layers": 2,
        "heads": 4,
        "new_tokens": 12,
        "checked": 4,
        "dtype": "float32",
    }
    data_pattern: ClassVar[str] = "generated melodies in noise"
    domain: ClassVar[str] = "speech"
    reference_name: ClassVar[str] = "first_transcript_float64.pt"

    batch: int = 64
    positions: int = 1500
    bins: int = 128
    vocabulary: int = 51_866
    hidden: int = 1280
    layers: int = 32
    heads: int = 20
    new_tokens: int = 64
    checked: int = 4
    dtype: str = "bfloat16"
    num_inputs: int = 4

    def __post_init__(self) -> None:
        require_positive(self, *self.small.keys() - {"dtype"}, "num_inputs")
        require_even_heads(self.hidden, self.heads)
        dtype_named(self.dtype)
        if self.vocabulary <= SPECIAL:
            raise ParameterError(f"vocabulary is {self.vocabulary}: give more than {SPECIAL}")
        if self.new_tokens > self._places - len(FORMAT):
            message = f"new_tokens is {self.new_tokens}: give {self._places - len(FORMAT)} at most"
            raise ParameterError(message)
        if self.batch < 2:  # noqa: PLR2004 - one clip cannot differ from another
            raise ParameterError(f"batch is {self.batch}: give 2 or more")

    _places: ClassVar[int] = 448
    """Of the decoder, in every Whisper."""

    @property
    def scenario(self) -> Scenario:
        return "offline"

    @property
    def shape(self) -> tuple[int, int, int]:
        return (self.batch, self.new_tokens, self.vocabulary)

    @property
    def ends(self) -> tuple[int, ...]:
        return (self.vocabulary - SPECIAL,)

    def work(self) -> Work:
        """The encoder and its keys and values once; then each token, and all those before it."""
        frames = 2 * self.positions

        def encoded() -> torch.Tensor:
            states: torch.Tensor = self._model().model.encoder(
                torch.empty(self.batch, self.bins, frames)
            )[0]
            return states

        length, wide = len(FORMAT) + self.new_tokens - 1, self.hidden
        keys = 2 * 2 * self.layers * self.positions * wide**2
        products = 2 * self.layers * length * (4 + 2 + 2 * 4) * wide**2
        attended = length * (length + 1) // 2 + length * self.positions
        head = 2 * self.new_tokens * wide * self.vocabulary
        decoded = keys + products + 4 * self.layers * wide * attended + head
        flops = count_flops(encoded, with_backward=False) + self.batch * decoded
        return Work(units=self.batch, unit="clips", flops=flops, precision=self.dtype)

    def num_parameters(self) -> int:
        return count_parameters(self._model)

    def _model(self) -> WhisperForConditionalGeneration:
        first = self.vocabulary - SPECIAL
        config = WhisperConfig(
            vocab_size=self.vocabulary,
            num_mel_bins=self.bins,
            max_source_positions=self.positions,
            max_target_positions=self._places,
            d_model=self.hidden,
            encoder_layers=self.layers,
            encoder_attention_heads=self.heads,
            encoder_ffn_dim=4 * self.hidden,
            decoder_layers=self.layers,
            decoder_attention_heads=self.heads,
            decoder_ffn_dim=4 * self.hidden,
            bos_token_id=first,
            eos_token_id=first,
            pad_token_id=first,
            decoder_start_token_id=first + FORMAT[0],
            begin_suppress_tokens=None,
        )
        return WhisperForConditionalGeneration(config)

    def _filled(self, drawer: Drawer, device: torch.device) -> WhisperForConditionalGeneration:
        """Model in the format that runs; the table of sines is computed on the host."""
        with no_init_weights(), device:
            model = self._model()
        model.tie_weights()
        table = model.model.encoder.embed_positions.weight
        with torch.no_grad():
            table.copy_(sinusoids(*table.shape))
        torch.nn.Module.to(model, dtype_named(self.dtype))
        torch.nn.Module.eval(model)
        fill(model, drawer, gains=GAINS, excluded=NOT_REDRAWN)
        model.requires_grad_(requires_grad=False)
        return model

    def build(self, target: Target, seed: int) -> State:
        draws = Draws(target=target, seed=seed)
        songs = drawn_songs(draws, CLASSES)
        return State(
            model=self._filled(draws, target.device),
            requests=[self._clips(draws, songs, index) for index in range(self.num_inputs)],
            opening=self._opening().to(target.device),
            bar=bar(self.vocabulary, self.ends).to(target.device, dtype_named(self.dtype)),
            cycle=InputCycle(of=self.num_inputs),
            seed=seed,
            artifacts=target.artifacts,
        )

    def _clips(self, drawer: Drawer, songs: torch.Tensor, index: int) -> torch.Tensor:
        """Spectrograms (clip, bin, frame) of an input set, where the drawer draws."""
        clips, _ = drawn_spectrograms(
            drawer,
            str(index),
            songs,
            count=self.batch,
            bins=self.bins,
            frames=2 * self.positions,
        )
        return clips.to(dtype_named(self.dtype))

    def request(self, state: State, index: int) -> torch.Tensor:
        drawer = HostDraws(seed=state.seed)
        return self._clips(drawer, drawn_songs(drawer, CLASSES), index)

    def _opening(self) -> torch.Tensor:
        """Tokens (position) that a transcript begins with."""
        return torch.tensor(FORMAT) + self.vocabulary - SPECIAL

    @torch.no_grad()
    def step(self, state: State) -> Generated:
        clips, model = state.requests[state.cycle.advance()], state.model
        heard = model.model.encoder(clips)
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())

        def forward(read: torch.Tensor) -> torch.Tensor:
            hidden = model.model.decoder(
                input_ids=read,
                encoder_hidden_states=heard.last_hidden_state,
                past_key_values=cache,
                use_cache=True,
            ).last_hidden_state
            logits: torch.Tensor = model.proj_out(hidden[:, -1:])
            return logits

        opening = state.opening.expand(self.batch, -1)
        return generate(forward, opening, state.bar, self.new_tokens)

    def compare(self, before: Before, state: State, output: Generated) -> Iterator[Check]:
        chosen = self._chosen(before.number, state.seed)
        tokens = known(output.tokens, self.vocabulary)[chosen]
        logits, dtype = output.logits.cpu()[chosen], dtype_named(self.dtype)
        make = partial(self._listen, before.request, chosen, tokens, state.seed)
        reference = self.reference(before, state, tokens, make)
        yield from compare_logits(logits, reference["own"], unit_roundoffs=LOGITS, dtype=dtype)
        yield from compare_choices(
            tokens, reference["own"], self.ends, unit_roundoffs=LOGITS, dtype=dtype
        )
        own, other = reference["own"][0], reference["other"][0]
        share = (own - other).square().mean().sqrt() / own.square().mean().sqrt()
        yield Check(
            name="logits depend on the clip",
            error=(LEAST_SHARE / share).item(),
            bound=1.0,
            detects=LEAST_SHARE,
            detects_what="share of the logits' size that another clip changes",
        )

    def _chosen(self, number: int, seed: int) -> list[int]:
        """Clips that are compared: all of the first step, a few of each other."""
        if number == 0:
            return list(range(self.batch))
        rng = torch.Generator().manual_seed((seed + number) % 2**63)
        return sorted(torch.randperm(self.batch, generator=rng)[: self.checked].tolist())

    @torch.no_grad()
    def _listen(
        self, clips: torch.Tensor, chosen: list[int], tokens: torch.Tensor, seed: int
    ) -> Tensors:
        """Float64 logits of these tokens of the chosen clips, decoded without a cache at once.

        `own` is of each clip, `other` of the first one's tokens as if of another clip.
        """
        model: Any = self._filled(HostDraws(seed=seed), torch.device("cpu")).double()
        wanted = clips[[*chosen, (chosen[0] + 1) % self.batch]].double()
        written = torch.cat((tokens, tokens[:1]))
        opening = self._opening().expand(len(written), -1)
        read = torch.cat((opening, written[:, :-1]), dim=1)
        logits = torch.cat(
            [
                model(input_features=some, decoder_input_ids=ids, use_cache=False).logits
                for some, ids in zip(
                    torch.split(wanted, AT_ONCE), torch.split(read, AT_ONCE), strict=True
                )
            ]
        )[:, len(FORMAT) - 1 :]
        return {"own": logits[:-1], "other": logits[-1:]}


WORKLOAD = WhisperTranscribe
