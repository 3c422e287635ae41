"""A chat answered by Llama 3.1: one query at a time, each generated token from the cache.

One step reads one conversation, in the model's own format (a header with the role, what the user
says, the header of the answer), and generates `new_tokens` tokens of the answer. Queries of a key
for four heads, and rotations slowed for long texts, are what it has beyond Llama 2; its checks are
those of `parts/language/decoding.py`, whose float64 decoder shares no code with the library.

Only generated tokens are counted. A step is a query, and its time the latency of a whole answer.
With `new_tokens` of 1 it is the time to the first token; what a longer answer takes beyond that,
over the tokens that it has more, is the time per token. So both come from whole queries, each
timed from outside, and no clock runs within one.

Healthy devices reach a quarter of their bounds (`calibration/llm_chat.toml`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from appliance.records.json import Parameters
from workloads.contract.failures import ParameterError
from workloads.parts.drawing.drawn import Drawer
from workloads.parts.language.decoder import Stretch
from workloads.parts.language.decoding import Decoding
from workloads.parts.numerics.parameters import require_positive

SPECIAL = 256
"""Tokens at the end of the vocabulary that are no words."""
BEGIN, HEADER, HEADER_ENDS, TURN_ENDS = 0, 6, 7, 9
ENDS = (1, 8, TURN_ENDS)
"""Special tokens, by their place among them: of a text, of a message, of a turn."""
USER, ASSISTANT, BLANK = 882, 78_191, 271
"""Words of the format, where the vocabulary has them."""
_FRAME = 10
"""Tokens of a prompt that are format."""


@dataclass(frozen=True, kw_only=True)
class LlmChat(Decoding):
    """`shared_heads`: heads of keys and values, each of which several queries share."""

    summary: ClassVar[str] = "Llama-3.1-8B shape, chat completion, one query at a time"
    version: ClassVar[int] = 3
    small: ClassVar[Parameters] = {
        "vocabulary": 1000,
        "hidden": 256,
        "intermediate": 896,
        "layers": 3,
        "heads": 8,
        "shared_heads": 2,
        "prompt": 32,
        "new_tokens": 16,
        "dtype": "float32",
    }
    data_pattern: ClassVar[str] = "random words in the chat format"
    domain: ClassVar[str] = "decoding"

    vocabulary: int = 128_256
    intermediate: int = 14_336
    shared_heads: int = 8
    prompt: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "shared_heads")
        if self.heads % self.shared_heads:
            message = f"shared_heads is {self.shared_heads}: give a divisor of heads, {self.heads}"
            raise ParameterError(message)
        if self.vocabulary <= 2 * SPECIAL:
            message = f"vocabulary is {self.vocabulary}: give more than {2 * SPECIAL}"
            raise ParameterError(message)
        if self.prompt <= _FRAME:
            message = f"prompt is {self.prompt}: give more than {_FRAME}, which are format"
            raise ParameterError(message)

    @property
    def key_heads(self) -> int:
        return self.shared_heads

    @property
    def _words(self) -> int:
        return self.vocabulary - SPECIAL

    @property
    def ends(self) -> tuple[int, ...]:
        return tuple(self._words + place for place in ENDS)

    @property
    def theta(self) -> float:
        return 500_000.0

    @property
    def stretch(self) -> Stretch:
        return Stretch(factor=8.0, low=1.0, high=4.0, original=8192)

    @property
    def uniform(self) -> tuple[int, int]:
        return self._words, self.prompt - _FRAME

    def prompts(self, drawer: Drawer, index: int) -> torch.Tensor:
        first = self._words
        user, assistant, blank = (word % first for word in (USER, ASSISTANT, BLANK))
        opening = torch.tensor([first + BEGIN, first + HEADER, user, first + HEADER_ENDS, blank])
        closing = torch.tensor(
            [first + TURN_ENDS, first + HEADER, assistant, first + HEADER_ENDS, blank]
        )
        message = drawer.tensor(*self.wanted(index))
        frame = (part.to(message.device).expand(self.batch, -1) for part in (opening, closing))
        before, after = frame
        return torch.cat((before, message, after), dim=1)


WORKLOAD = LlmChat
