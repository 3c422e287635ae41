"""The witness of a device's other users: gaps of slices, none of a quiet device or a slow host."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from appliance.evidence.disturbance import gap_share
from appliance.records.journal import Witnessed
from appliance.worker.torch_device import DeviceStopwatch, device_witness, equal_work
from appliance.worker.witness import LEAST_PIECES, MOST_PIECES, Train, Witness, make_witness

MICROSECOND = 1_000
HAND_OVER = 10 * MICROSECOND


class Device:
    """A device with a queue: the host hands work over in 10 us, the device does it in its order.

    Of each `period` the device is ours for `ours`, by default for all of it. The host stands still
    for `held` ns at the piece of the number `at`.
    """

    def __init__(
        self,
        *,
        ours: int = 1,
        period: int = 1,
        held: int = 0,
        at: int = -1,
        jitter: int = 0,
        room: int | None = None,
    ) -> None:
        self.host = self.done = self.given = 0
        self.ours, self.period, self.held, self.at = ours, period, held, at
        self.jitter, self.room = jitter, room

    def now(self) -> int:
        return self.host

    def raw(self) -> int:
        return self.host

    def synchronise(self) -> None:
        self.host = max(self.host, self.done)

    def mark(self) -> int:
        self.host += HAND_OVER // 2
        return max(self.done, self.host)

    def between(self, begin: int, end: int) -> int:
        return end - begin

    def piece(self, count: int) -> Callable[[], object] | None:
        """Work of 2 us for 2^16 numbers, and as much longer as there are more of them."""
        if self.room is not None and count > self.room:
            return None
        length = 2 * MICROSECOND * count // 2**16

        def work() -> None:
            self.host += HAND_OVER // 2 + (self.held if self.given == self.at else 0)
            self.given += 1
            begin = max(self.done, self.host)
            left = length + (self.given % 3) * self.jitter
            while left > 0:
                if self.period > 1 and begin % self.period >= self.ours:
                    begin += self.period - begin % self.period
                room = left if self.period == 1 else self.ours - begin % self.period
                begin, left = begin + min(left, room), left - min(left, room)
            self.done = begin

        return work


def share(train: Train) -> float | None:
    return gap_share(
        Witnessed(launch="a/0", rank=0, index=0, piece_ns=train.piece_ns, issue_ns=train.issue_ns)
    )


def looked(device: Device) -> float | None:
    return share(train_of(make_witness(device.piece, device), device))


def train_of(witness: Witness | None, device: Device) -> Train:
    assert witness is not None
    train = witness.look(device)
    assert train is not None
    return train


def test_a_train_is_long_enough_to_show_slices_and_short_enough_to_cost_nothing() -> None:
    device = Device()
    train = train_of(make_witness(device.piece, device), device)
    assert 5_000_000 < sum(train.piece_ns) < 15_000_000
    assert len(train.piece_ns) <= MOST_PIECES


@pytest.mark.parametrize("jitter", [0, 3 * MICROSECOND])
def test_a_quiet_device_shows_no_gap(jitter: int) -> None:
    assert looked(Device(jitter=jitter)) == 0.0


def test_time_slices_of_another_user_are_gaps() -> None:
    millisecond = 1_000_000
    gaps = looked(Device(ours=2 * millisecond, period=4 * millisecond))
    assert gaps is not None
    assert 0.3 < gaps < 0.6


@pytest.mark.parametrize("at", [120, 140, 200])
def test_a_host_that_is_held_up_while_it_hands_over_leaves_no_gap(at: int) -> None:
    """Counted from the first piece of all, those with which the size is chosen among them."""
    gaps = looked(Device(held=5_000_000, at=at))
    assert gaps in (None, 0.0)


def test_a_train_whose_pieces_are_shorter_than_their_handing_over_says_nothing() -> None:
    device = Device()
    witness = Witness(make_piece=device.piece, count=2**16, pieces=100)
    assert share(train_of(witness, device)) is None


def test_processors_have_no_witness() -> None:
    device = torch.device("cpu")
    assert device_witness(device, DeviceStopwatch(device)) is None


def test_a_clock_that_stands_still_gives_no_witness_and_costs_no_work() -> None:
    class Dead(Device):
        def between(self, begin: int, end: int) -> int:
            del begin, end
            return 0

    device = Dead()
    assert make_witness(device.piece, device) is None
    assert device.given <= LEAST_PIECES + 1


def test_a_full_device_is_watched_by_the_longest_piece_that_it_has_room_for() -> None:
    device = Device(room=2**18)
    witness = make_witness(device.piece, device)
    assert witness is not None
    assert witness.count == device.room
    assert make_witness(Device(room=0).piece, device) is None


def test_a_device_that_has_no_room_any_more_is_not_looked_at_then() -> None:
    device = Device()
    witness = make_witness(device.piece, device)
    assert witness is not None
    device.room = 0
    assert witness.look(device) is None
    device.room = None
    assert share(train_of(witness, device)) == 0.0


def test_nothing_is_held_between_two_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step may want all of a device's memory."""
    held: list[weakref.ref[torch.Tensor]] = []
    plain = torch.empty

    def empty(*given: Any, **named: Any) -> torch.Tensor:
        made = plain(*given, **named)
        held.append(weakref.ref(made))
        return made

    monkeypatch.setattr(torch, "empty", empty)
    device, host = Device(), torch.device("cpu")
    witness = make_witness(lambda count: equal_work(host, count), device)
    assert witness is not None
    assert len(held) > 1
    train_of(witness, device)
    gc.collect()
    assert not any(one() is not None for one in held)


def test_work_that_is_made_again_and_again_leaves_its_numbers_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    numbers = torch.arange(2**10)
    monkeypatch.setattr(torch, "empty", lambda *_, **__: numbers)
    work = equal_work(torch.device("cpu"), len(numbers), times=3)
    work()
    assert numbers.tolist() == [1] * len(numbers)


def test_a_device_that_lacks_memory_for_the_first_piece_has_no_witness(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object, **__: object) -> torch.Tensor:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(torch, "empty", full)
    monkeypatch.setattr(DeviceStopwatch, "mark", lambda _: 0)
    device = torch.device("cpu")
    assert device_witness(device, DeviceStopwatch(device)) is None
