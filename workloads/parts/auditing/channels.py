"""Which channels of a layer are followed, and where in its tensors they lie.

Channels are drawn of a weight and not of a layer, so that two layers with one weight have the same.
Of a table of vectors those rows are drawn that the batch reads, where no other rank reads others.
A layer that is not listed here has its weights followed where all of its rows are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import nn

from workloads.parts.auditing.selection import CHANNELS, draw_channels

Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d
BatchNorm = nn.modules.batchnorm._BatchNorm  # noqa: SLF001 - what the three have in common
_MATRIX = 2


@dataclass(frozen=True, kw_only=True)
class Channels:
    """The drawn channels of a layer along dimension `dim` of what it is given and makes.

    `rows` and `columns` are of its weight: outputs and inputs of a product, numbers and elements of
    a table. `is_table`: what it is given are numbers, all of which are read. `group`: the one of a
    convolution's groups that all of them are in.
    """

    dim: int
    given: torch.Tensor | None
    made: torch.Tensor
    rows: torch.Tensor
    columns: torch.Tensor | None = None
    is_table: bool = False
    group: int | None = None

    def of_given(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """What is read of all rows of the input, if anything is."""
        if self.is_table:
            return tensor
        return None if self.given is None else _chosen(tensor, self.dim, self.given)

    def of_made(self, tensor: torch.Tensor) -> torch.Tensor:
        return _chosen(tensor, self.dim, self.made)


def _chosen(tensor: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
    return tensor.index_select(dim, index.to(tensor.device))


def is_batch_norm(module: nn.Module) -> bool:
    """Whether it normalises each channel over the whole batch, and has weights."""
    return isinstance(module, BatchNorm) and module.affine and module.training


def is_norm(module: nn.Module) -> bool:
    """Whether each of its outputs is a normalised input times a weight, plus a bias if any."""
    if isinstance(module, nn.GroupNorm | nn.LayerNorm):
        return isinstance(module.weight, torch.Tensor) and module.weight.dim() == 1
    weight = getattr(module, "weight", None)
    named = type(module).__name__.endswith("RMSNorm")
    return named and isinstance(weight, torch.Tensor) and weight.dim() == 1


def first_names(model: nn.Module) -> dict[str, str]:
    """By each name of a weight the first of those that it has."""
    first = {id(weight): name for name, weight in model.named_parameters()}
    every = model.named_parameters(remove_duplicate=False)
    return {name: first[id(weight)] for name, weight in every}


@dataclass(kw_only=True)
class Draws:
    """The channels drawn in one step; `names`: by each name of a weight the first one that it has.

    `is_alone`: no other rank has to draw the same.
    """

    seed: int
    names: Mapping[str, str]
    is_alone: bool = True
    drawn: dict[str, torch.Tensor] = field(default_factory=dict)

    def of(
        self, module: nn.Module, path: str, given: torch.Tensor | None = None
    ) -> Channels | None:
        """Draw those of a layer that is given this; None where no channels are known of it."""
        weight = getattr(module, "weight", None)
        if not isinstance(weight, torch.Tensor) or not weight.dim():
            return None
        name = self.names.get(f"{path}.weight", f"{path}.weight")
        if isinstance(module, nn.Linear):
            rows, columns = (self._draw(name, dim, weight.shape[dim]) for dim in (0, 1))
            return Channels(dim=-1, given=columns, made=rows, rows=rows, columns=columns)
        if isinstance(module, Convolution) and module.padding_mode == "zeros":
            return self._of_convolution(module, name)
        if isinstance(module, nn.Embedding):
            return self._of_table(module, name, given)
        return self._of_norm(module, name, len(weight))

    def _of_norm(self, module: nn.Module, name: str, number: int) -> Channels | None:
        if is_batch_norm(module):
            index = self._draw(name, 0, number)
            return Channels(dim=1, given=index, made=index, rows=index)
        if not is_norm(module):
            return None
        index = self._draw(name, 0, number)
        is_second = getattr(module, "data_format", "") == "channels_first"  # of ConvNeXt's
        dim = 1 if is_second or isinstance(module, nn.GroupNorm) else -1
        return Channels(dim=dim, given=None, made=index, rows=index)

    def _draw(self, name: str, dim: int, number: int, count: int = CHANNELS) -> torch.Tensor:
        key = f"{name}.{dim}"
        if key not in self.drawn:
            self.drawn[key] = draw_channels(self.seed, key, number, count)
        return self.drawn[key]

    def _of_table(self, module: nn.Embedding, name: str, given: torch.Tensor | None) -> Channels:
        """Rows that the batch reads: of others there is nothing to see."""
        if self.is_alone and given is not None and f"{name}.0" not in self.drawn:
            read = torch.unique(given.detach().cpu())
            picked = draw_channels(self.seed, f"{name}.0", len(read))
            self.drawn[f"{name}.0"] = read[picked]
        rows = self._draw(name, 0, module.num_embeddings)
        columns = self._draw(name, 1, module.embedding_dim)
        return Channels(dim=-1, given=None, made=columns, rows=rows, columns=columns, is_table=True)

    def _of_convolution(self, module: Convolution, name: str) -> Channels:
        """Of a convolution in groups one group, or several of few channels, which are whole."""
        given, made = (n // module.groups for n in (module.in_channels, module.out_channels))
        if given < CHANNELS and module.groups > 1:
            groups = self._draw(name, 0, module.groups, max(1, CHANNELS // given))
            rows = _spread(groups, made)
            return Channels(dim=1, given=_spread(groups, given), made=rows, rows=rows)
        group = int(self._draw(f"{name}.group", 0, module.groups, 1))
        rows = self._draw(name, 0, made) + group * made
        columns = self._draw(name, 1, given)
        return Channels(
            dim=1,
            given=columns + group * given,
            made=rows,
            rows=rows,
            columns=columns,
            group=group,
        )


def _spread(groups: torch.Tensor, size: int) -> torch.Tensor:
    return (groups[:, None] * size + torch.arange(size)).flatten()
