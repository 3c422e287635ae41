"""Mel spectrograms of melodies to classify, of the size and scale that Whisper reads.

A melody is a class: the same few notes in the same order, over and over. What differs from clip
to clip is the tempo, where it begins, how loud it is and the noise around it.

Each element of a spectrogram is the louder of two, in decades of power: what a pure tone of the
frame's note leaves in the bin, by Whisper's window and filters, and noise. The tones are computed
once by the host and rounded to multiples of 2^-10; where they sound follows from integers. What is
left are two sums of float32 and a product, each rounded as IEEE 754 says, so a spectrogram has the
same bits wherever it is made. Whisper's recipe takes a Fourier transform and logarithms, whose
last bits are the library's.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from transformers.audio_utils import mel_filter_bank

from appliance.generator.maps import WORDS, integers, normal
from workloads.parts.drawing.drawn import Drawer

RATE = 16_000
"""Samples a second."""
HOP, WINDOW = 160, 400
"""Samples between two frames, and in one."""
_NOTES = 3
_LOWEST, _SEMITONES = 220.0, 30
_BITS_OF_A_NOTE = 16
"""Of a melody's progress, which is counted in integers."""
_SLOWEST, _FASTEST = 4194, 6291
"""Progress in a frame: 6.4 to 9.6 notes a second."""
_LOUDNESSES = 256
"""Different ones, of amplitudes 0.2 to 0.8."""
_NOISE = normal(-2.95, 0.35)
"""Decades of power that a bin has of noise of the amplitude 0.02, on the average of the bins."""
_SILENCE = 1e-10
_ROUNDED = 2.0**10
_LOUDEST = 4.0
"""Whisper's shift and scale of decades."""


def drawn_songs(drawer: Drawer, classes: int, name: str = "songs") -> torch.Tensor:
    """The notes of each melody (class, note), in semitones above the lowest tone.

    `name` tells them from other songs of the drawer.
    """
    words = drawer.tensor(name, WORDS, torch.int64, (classes, _SEMITONES))
    return words.argsort(dim=1, stable=True)[:, :_NOTES]


def drawn_spectrograms(
    drawer: Drawer, name: str, songs: torch.Tensor, *, count: int, bins: int, frames: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Float32 spectrograms (clip, mel bin, frame) and their classes, as many of each.

    A frame is `HOP` samples. `name` tells the clips from others of the drawer; `songs` are what
    `drawn_songs` made.
    """
    order = drawer.tensor(f"order {name}", WORDS, torch.int64, (count,))
    labels = order.argsort(stable=True) % len(songs)
    tempo = drawer.tensor(f"tempo {name}", integers(_SLOWEST, _FASTEST), torch.int64, (count, 1))
    begin = integers(0, (_NOTES << _BITS_OF_A_NOTE) - 1)
    start = drawer.tensor(f"start {name}", begin, torch.int64, (count, 1))
    progress = start + tempo * torch.arange(frames, device=start.device)
    beats = (progress >> _BITS_OF_A_NOTE) % _NOTES
    pitches = songs[labels].gather(1, beats)
    loud = drawer.tensor(f"loudness {name}", integers(0, _LOUDNESSES - 1), torch.int64, (count,))
    tones = _tones(bins).to(loud.device)[pitches].transpose(1, 2)
    tones = tones + _loudness().to(loud.device)[loud][:, None, None]
    noise = drawer.tensor(f"noise {name}", _NOISE, torch.float32, (count, bins, frames))
    return noise.maximum(tones).add_(_LOUDEST).mul_(1 / _LOUDEST).contiguous(), labels


@lru_cache(maxsize=8)
def _tones(bins: int) -> torch.Tensor:
    """Decades of power (semitone, mel bin) that a pure tone of amplitude 1 leaves, on the host."""
    filters = mel_filter_bank(
        num_frequency_bins=1 + WINDOW // 2,
        num_mel_filters=bins,
        min_frequency=0.0,
        max_frequency=RATE / 2,
        sampling_rate=RATE,
        norm="slaney",
        mel_scale="slaney",
    )
    frequencies = _LOWEST * 2 ** (np.arange(_SEMITONES)[:, None] / 12)
    turns = frequencies / RATE * np.arange(WINDOW)
    window = np.hanning(WINDOW + 1)[:-1]
    spectrum = np.fft.fft(window * np.exp(2j * np.pi * turns))[:, : 1 + WINDOW // 2] / 2
    return _decades((np.abs(spectrum) ** 2) @ filters)


@lru_cache(maxsize=1)
def _loudness() -> torch.Tensor:
    """Decades of power of each loudness, on the host."""
    return _decades((0.2 + 0.6 * np.arange(_LOUDNESSES) / (_LOUDNESSES - 1)) ** 2)


def _decades(power: NDArray[np.float64]) -> torch.Tensor:
    """Logarithms rounded so far that hosts agree on them, exact in float32."""
    decades = np.rint(np.log10(np.maximum(power, _SILENCE)) * _ROUNDED) / _ROUNDED
    return torch.from_numpy(decades).float()
