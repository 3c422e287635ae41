"""Initial weights of the size that lets signals through a network of any width.

Libraries draw every weight with a standard deviation of 0.02, which suits widths near 2500: in
a narrow network, what an input says then drowns in what is the same for all (positions, say),
logits are as good as constant, and gradients are differences of nearly equal numbers.
"""

from __future__ import annotations

import torch
from torch import nn

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d)


def scaled(model: torch.nn.Module) -> None:
    """Draw the weights of linear and convolution layers anew, of variance one over their inputs.

    Twice that for convolutions, of whose sums the activation that follows keeps a half (He et
    al., 2015). From torch's own generator, as the library drew them. An output layer that is
    tied to an embedding is left as the embedding is.
    """
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    for module in model.modules():
        if isinstance(module, _CONVOLUTIONS):
            nn.init.normal_(module.weight, std=(2 / module.weight[0].numel()) ** 0.5)
        elif isinstance(module, nn.Linear) and id(module.weight) not in embeddings:
            nn.init.normal_(module.weight, std=module.in_features**-0.5)
