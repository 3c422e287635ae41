"""What a class of workloads says of itself; plan, worker and report read it, defaults and all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from appliance.records.json import Parameters
from appliance.records.workload import (
    Bound,  # not for types alone: listing the parameters evaluates it
)


class Facts:
    """Facts of the class; a subclass gives the first three and what else applies.

    Of every workload:

    - `summary`: one line. `version`: another for numbers that mean something else.
    - `small`: parameters for two CPU cores.
    - `domain`: the field that the work comes from, for the list of workloads.
    - `bound_by`: what limits its speed on a healthy device.
    - `data_pattern`: what its inputs are, as speed may depend on them.
    - `variants`: changes of parameters by name, at small and at full size alike, of which the run's
      seed draws one; what is right must hold for each.

    Of some:

    - `needs`: features of the target without which a case is unsupported.
    - `data`: names of data sets.
    - `alone`: no other device works meanwhile.
    - `checks_later`: an output may be checked after later steps. Of the state `check` reads but
      what no step changes and the `cycle`, which is set back for it, and what it puts back itself.
    - `reuses_output`: a step writes where the one before left its output, so that an output is
      copied that is checked later. Without, it shares no memory with that of another step.
    - `is_timed`: False for a pure correctness case.
    - `is_repeatable`: the same build and first step are bitwise reproducible on processors in the
      library's default mode; where an operator is not proven so, set it False and `spread`, the
      measured largest relative difference. Bits are judged in the deterministic phase alone.
    - `builds_with`: modules that building imports and importing the workload does not, as they take
      long; before it builds, the worker imports them off its clock, and a fork server once for all
      launches.
    - `starts_when_imported`: those of them that start a thread or compute when they are imported; a
      process that was forked after that would lack the thread, so each launch imports them itself.
    - `injector`: the fault that it injects on purpose; a run with one is never accepted.
    """

    summary: ClassVar[str]
    version: ClassVar[int]
    small: ClassVar[Parameters]
    domain: ClassVar[str] = ""
    bound_by: ClassVar[Bound] = "compute"
    data_pattern: ClassVar[str] = "random"
    variants: ClassVar[Mapping[str, Parameters]] = {}

    needs: ClassVar[frozenset[str]] = frozenset()
    data: ClassVar[tuple[str, ...]] = ()
    alone: ClassVar[bool] = False
    checks_later: ClassVar[bool] = False
    reuses_output: ClassVar[bool] = False
    is_timed: ClassVar[bool] = True
    is_repeatable: ClassVar[bool] = True
    spread: ClassVar[float] = 0.0
    builds_with: ClassVar[tuple[str, ...]] = ()
    starts_when_imported: ClassVar[tuple[str, ...]] = ()
    injector: ClassVar[str] = ""
