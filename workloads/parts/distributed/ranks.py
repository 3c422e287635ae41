"""The processes of one launch as torch.distributed joins them, and operations among them by name.

A launch of several processes is started by torchrun, which gives each its rank and where they
meet. All of them work on the one device of their case: on the processors of a node the ranks
share the cores. (One accelerator for each rank, a launch of several devices, is a later stage.)
A process that is alone, as in a test, forms a group of one.

An operation that waits for a rank which does not come ends after `Target.stall_seconds`, below
the time limit of the case, as `Stalled`; one whose partner is gone ends as `PeerLost`. Both name
the operation, so a hang is reported with the place where it hung.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from workloads.contract.target import Target

_PLACE = re.compile(r"\[[^\]]*:\d+\]")  # a line of the backend's own source
_LATE = re.compile(r"time(d)?[ -]?out", re.IGNORECASE)


class Stalled(RuntimeError):
    """An operation waited for another rank for as long as it may; names the operation."""


class PeerLost(RuntimeError):
    """An operation failed, as it does when another rank ends; names the operation."""


@contextmanager
def operation(name: str) -> Iterator[None]:
    """Name whatever goes wrong inside; raises Stalled or PeerLost for what the backend raises.

    The backends have no common type for a time that ran out, but all of them say it.
    """
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        kind = Stalled if _LATE.search(str(error)) else PeerLost
        message = " ".join(_PLACE.sub("", str(error)).split())
        raise kind(f"{name}: {message}") from error


@dataclass(frozen=True)
class Ranks:
    """All ranks of the launch: this one's number, how many there are, and their groups."""

    rank: int
    size: int
    seconds: float

    @cached_property
    def pairs(self) -> dict[tuple[int, int], dist.ProcessGroup]:
        """A group for every two ranks; those in which this rank is not are left out."""
        groups = {}
        with operation("forming the pairs of ranks"):
            for pair in itertools.combinations(range(self.size), 2):
                # Every rank takes part in forming every group, in the same order.
                group = dist.new_group(list(pair), timeout=_span(self.seconds))
                if self.rank in pair:
                    groups[pair] = group
        return groups

    def largest(self, number: int, device: torch.device) -> int:
        """The largest of the ranks' numbers, the same on all of them."""
        largest = torch.tensor([number], dtype=torch.int64, device=device)
        with operation("agreeing on a number of steps"):
            dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        return int(largest.item())

    def all_gathered(self, numbers: Sequence[int], device: torch.device) -> list[list[int]]:
        """What every rank has, by rank: as many integers of 64 bits from each."""
        own = torch.tensor(list(numbers), dtype=torch.int64, device=device)
        gathered = [torch.empty_like(own) for _ in range(self.size)]
        with operation("gathering numbers of all ranks"):
            dist.all_gather(gathered, own)
        return [one.tolist() for one in gathered]

    def summed(self, tensor: torch.Tensor) -> torch.Tensor:
        """The sum of every rank's tensor, which is written over."""
        with operation("adding up a tensor"):
            dist.all_reduce(tensor)
        return tensor

    def end_together(self) -> None:
        """Return when all ranks are here, so that none goes while another waits for its words."""
        with operation("ending together"):
            dist.barrier()

    def arrive(self, name: str) -> int:
        """Count this rank's arrival at `name`; how many have arrived."""
        with operation(f"counting arrivals at {name}"):
            return int(_store().add(name, 1))

    def arrived(self, name: str) -> int:
        """How many have arrived at `name`."""
        with operation(f"counting arrivals at {name}"):
            return int(_store().add(name, 0))


_joined: list[Ranks] = []


def join(target: Target) -> Ranks:
    """This process among those of its launch; joins them the first time it is asked.

    Raises Stalled if they do not all come within `target.stall_seconds`.
    """
    if not _joined:
        # Alone, there is nobody to meet and no place is named.
        meeting: dict[str, Any] = {} if target.world_size > 1 else {"store": HashStore()}
        with operation("joining the other ranks"):
            dist.init_process_group(
                target.collectives,
                rank=target.rank,
                world_size=target.world_size,
                timeout=_span(target.stall_seconds),
                **meeting,
            )
        _joined.append(
            Ranks(rank=target.rank, size=target.world_size, seconds=target.stall_seconds)
        )
    return _joined[0]


def _span(seconds: float) -> Any:
    """So many seconds in the type that torch wants, which is the type of its own default."""
    default = dist.default_pg_timeout
    return default * (seconds / default.total_seconds())


def _store() -> Any:
    """The table that all ranks share; it goes through the host and not through the collectives."""
    return dist.distributed_c10d._get_default_store()  # noqa: SLF001 - no public name for it
