"""Which of several input sets a step takes next."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(kw_only=True)
class InputCycle:
    """Counts steps, so that each takes the next of `of` input sets."""

    of: int
    number: int = field(default=-1)

    def advance(self) -> int:
        """Index of the input set for the step that begins now."""
        self.number += 1
        return self.index

    def repeat_input(self) -> bool:
        """Let the next step take the last one's input again."""
        self.number -= 1
        return True

    @property
    def index(self) -> int:
        """Index of the input set that the last step took."""
        return self.number % self.of
