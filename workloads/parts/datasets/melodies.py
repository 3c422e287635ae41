"""Melodies of pure tones to classify, and their mel spectrogram as Whisper reads it.

A melody is a class: the same few notes in the same order, over and over. What differs from clip
to clip is the tempo, where it begins, how loud it is and the noise around it. The spectrogram
is computed on the host, by the published recipe of Whisper: so every device is given the same
numbers.
"""

from __future__ import annotations

import torch
from transformers.audio_utils import mel_filter_bank

RATE = 16_000
"""Samples a second."""
HOP, WINDOW = 160, 400
"""Samples between two frames, and in one."""
_NOTES, _NOTES_A_SECOND = 3, 8.0
_LOWEST, _SEMITONES = 220.0, 30
_NOISE = 0.02
_DYNAMIC_RANGE, _LOUDEST = 8.0, 4.0
"""Decades of power that are kept below the loudest, and Whisper's shift and scale."""


def melodies(
    generator: torch.Generator, *, count: int, frames: int, classes: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return clips (clip, sample) in float32 near -1 to 1, and their classes, as many of each."""
    labels = torch.randperm(count, generator=generator) % classes
    draws = torch.rand(count, 3, generator=generator).unbind(dim=1)
    tempo = _NOTES_A_SECOND * (0.8 + 0.4 * draws[0])
    time = torch.arange(frames * HOP, dtype=torch.float64) / RATE
    beats = (tempo[:, None] * time + _NOTES * draws[1][:, None]).long() % _NOTES
    pitch = _songs(classes)[labels].gather(1, beats)
    frequency = _LOWEST * 2 ** (pitch.double() / 12)
    phase = (frequency / RATE).cumsum(dim=1) * (2 * torch.pi)
    tones = (0.2 + 0.6 * draws[2][:, None]) * phase.sin()
    noise = torch.randn(tones.shape, generator=generator)
    return tones.float() + _NOISE * noise, labels


def _songs(classes: int) -> torch.Tensor:
    """Semitones above the lowest tone (class, note), the same for every seed."""
    rng = torch.Generator().manual_seed(classes)
    return torch.stack([torch.randperm(_SEMITONES, generator=rng)[:_NOTES] for _ in range(classes)])


def log_mel(clips: torch.Tensor, bins: int) -> torch.Tensor:
    """Return Whisper's input (clip, mel bin, frame), a frame for every `HOP` samples."""
    filters = torch.from_numpy(
        mel_filter_bank(
            num_frequency_bins=1 + WINDOW // 2,
            num_mel_filters=bins,
            min_frequency=0.0,
            max_frequency=RATE / 2,
            sampling_rate=RATE,
            norm="slaney",
            mel_scale="slaney",
        )
    ).float()
    spectrum = torch.stft(clips, WINDOW, HOP, window=torch.hann_window(WINDOW), return_complex=True)
    power = filters.T @ spectrum[..., :-1].abs().square()
    decades = power.clamp(min=1e-10).log10()
    loudest = decades.amax(dim=(1, 2), keepdim=True)
    return (decades.maximum(loudest - _DYNAMIC_RANGE) + _LOUDEST) / _LOUDEST
