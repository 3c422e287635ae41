"""Atari games through ale-py's vector environment: the machine that plays, and the one that checks.

The emulator is deterministic: the same seeds and actions give the same frames. A game that ends
begins anew within the same step, so every step is one of the emulator and none is only a reset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

GAMES = ("breakout", "pong", "space_invaders")
ACTIONS = {"breakout": 4, "pong": 6, "space_invaders": 6}
FRAMES, SIDE, SKIPPED = 4, 84, 4
"""Frames of an observation, its side, and frames that one action is held."""
_SEEDS = 2**30


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What one step showed: frames (games, 4, 84, 84), rewards, ends, cuts, numbers of frames."""

    frames: NDArray[np.uint8]
    rewards: NDArray[np.float32]
    ends: NDArray[np.bool_]
    cuts: NDArray[np.bool_]
    clocks: NDArray[np.int32]


@dataclass(kw_only=True)
class Machine:
    """So many games, all that they were told since the beginning, and how often they were."""

    game: str
    num_envs: int
    seed: int
    past_actions: list[NDArray[np.int64]] = field(default_factory=list)

    def __post_init__(self) -> None:
        from ale_py.vector_env import AtariVectorEnv  # noqa: PLC0415 - no other row needs it

        self._games = AtariVectorEnv(
            self.game,
            self.num_envs,
            autoreset_mode="SameStep",
            episodic_life=True,
            reward_clipping=True,
        )
        frames: NDArray[np.uint8]
        frames, info = self._games.reset(seed=self.seed % _SEEDS)
        self.first = np.array(frames)
        self.first_clocks = np.array(info["frame_number"])

    def play(self, actions: NDArray[np.int64]) -> Seen:
        """Take one step in every game."""
        self.past_actions.append(actions)
        frames, rewards, ends, cuts, info = self._games.step(actions)
        return Seen(
            frames=np.array(frames),
            rewards=np.asarray(rewards, np.float32),
            ends=np.array(ends),
            cuts=np.array(cuts),
            clocks=np.array(info["frame_number"]),
        )


@lru_cache(maxsize=2)
def _replayed(
    game: str, num_envs: int, seed: int, past_actions: tuple[bytes, ...], last: int
) -> list[Seen]:
    other = Machine(game=game, num_envs=num_envs, seed=seed)
    seen = [other.play(np.frombuffer(content, np.int64)) for content in past_actions]
    return seen[-last:]


def replayed(
    machine: Machine,
    past_actions: Sequence[NDArray[np.int64]],
    actions: Sequence[NDArray[np.int64]],
) -> list[Seen]:
    """What another machine shows of `actions` after the same `past_actions`."""
    contents = tuple(
        np.ascontiguousarray(one, np.int64).tobytes() for one in (*past_actions, *actions)
    )
    return _replayed(machine.game, machine.num_envs, machine.seed, contents, len(actions))
