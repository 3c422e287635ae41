"""One launch of the deterministic phase: build, first step, its bits; after a mismatch many more.

The process does nothing else: it was started for this, with the libraries asked for the same bits
each time, and times nothing, so that the next launch's process may begin beside all of it. Where
its bits are not those that the first repeat of the case gave, it builds and steps again from the
same seed, 100 times or as often as its time limit allows, and reports what each gave and how the
first that differs from its own first output does.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from appliance.evidence.repeats import joint_digest
from appliance.planning.launch_constants import REPEATS_AFTER_MISMATCH
from appliance.records.journal import Difference, MismatchExamined, Repeated
from appliance.worker import outputs
from appliance.worker.measure import ROOM, LaunchCourse

LARGEST_EVIDENCE = 2**30
"""Bytes of an output that are kept on the host to show how others differ from it."""
NO_FORM = " does not have a deterministic implementation"
"""How torch warns of an operator; its name stands before (ATen/Context.cpp, alertNotDeterministic).
"""


@dataclass(frozen=True, kw_only=True)
class RepeatCourse(LaunchCourse):
    """A launch of the deterministic phase that is ready to run; `settings` are those of the phase.

    The libraries are in that mode before the first build.
    """

    settings: Mapping[str, str]

    def run(self) -> None:
        """Make the launch; every exception of the workload passes through."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            output, digests = self._made_ahead(self._first)
        self.progress.stage = "later"
        self._send(
            Repeated, digests=digests, operators=without_form(caught), settings=self.settings
        )
        expected = self.spec.expected.get(str(self.rank), digests)
        tensors = tuple(
            name for name in {**digests, **expected} if expected.get(name) != digests.get(name)
        )
        with self._in("wait"):
            has_mismatch = self.machine.agree(int(bool(tensors)))
        if not has_mismatch:
            return
        with self._in("second_build"):
            is_large = outputs.num_bytes(output) > LARGEST_EVIDENCE
            own = None if is_large else outputs.freeze(output, self.machine.bits)
            del output  # which may fill a device
            self._examine(own, joint_digest(digests), tensors)

    def _first(self) -> tuple[Any, dict[str, str]]:
        """Output of the first step, and digests of its tensors; the state is not kept."""
        state = self._built(self._build)
        output = self._step_once(state)
        del state
        gc.collect()
        self.progress.stages.enter("other")
        with self._in("digest"):
            return output, self._digests(output)

    def _output(self) -> Any:
        """Output of the first step of a state that is built anew; the state is not kept."""
        output = self._step_once(self._build())
        gc.collect()
        return output

    def _digests(self, output: Any) -> dict[str, str]:
        """Of each tensor of an output, by its name."""
        machine = self.machine
        return outputs.digests(output, machine.bits, self._threads, machine.pieces)

    def _examine(
        self, own: outputs.Frozen | None, own_digest: str, tensors: tuple[str, ...]
    ) -> None:
        """Repeat the same operands, and send what they gave beside this launch's own output."""
        answers: list[str] = []
        difference: Difference | None = None
        longest = 0
        while len(answers) < REPEATS_AFTER_MISMATCH and self._has_room(longest):
            begin = self.machine.stopwatch.now()
            output = self._output()
            again = self._digests(output)
            answers.append(joint_digest(again))
            if difference is None and own is not None and answers[-1] != own_digest:
                difference = outputs.difference(own, outputs.freeze(output, self.machine.bits))
            del output
            longest = max(longest, self.machine.stopwatch.now() - begin)
        self._send(
            MismatchExamined,
            tensors=tensors[: outputs.NAMED],
            num_wanted=REPEATS_AFTER_MISMATCH,
            answers=tuple(answers),
            difference=difference,
        )

    def _has_room(self, longest: int) -> bool:
        """Whether the time limit leaves room for one more repeat, on every rank."""
        passed = self.machine.stopwatch.now() - self.begin_ns
        limit = ROOM * self.spec.case.time_limit_seconds * 1e9
        return not self.machine.agree(int(passed + longest > limit))


def without_form(caught: list[warnings.WarningMessage]) -> tuple[str, ...]:
    """Operators of which torch warned that they have no deterministic form, each once."""
    texts = (str(one.message) for one in caught)
    return tuple(sorted({text.partition(NO_FORM)[0].strip() for text in texts if NO_FORM in text}))
