"""The generator's network in torch, for training; `harness.solvers.search.generator.network` runs the same in NumPy."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from harness.solvers.search.generator.generator import PARTS
from harness.solvers.search.generator.network import DILATIONS, WINDOW
from harness.solvers.search.generator.vocabulary import DISTANCES

WIDTH, HIDDEN = 96, 192


class Network(nn.Module):  # type: ignore[misc]
    """Convolutions over the context, and a recurrent decoder that writes common tokens or copies one of the context."""

    def __init__(self, rows: int, common: int) -> None:
        """Create the network. rows: of the embedding. common: the number of common tokens, which are its first rows."""
        super().__init__()
        self.common = common
        self.embedding = nn.Parameter(torch.randn(rows, WIDTH) * 0.1)
        self.parts = nn.Parameter(torch.randn(PARTS, WIDTH) * 0.1)
        self.distances = nn.Parameter(torch.randn(DISTANCES, WIDTH) * 0.1)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(len(DILATIONS) + 1))
        self.convolutions = nn.ModuleList(nn.Linear(WINDOW * WIDTH, WIDTH) for _ in DILATIONS)
        self.start = nn.Linear(2 * WIDTH, HIDDEN)
        self.recurrent = nn.GRU(WIDTH, HIDDEN, batch_first=True)
        self.query = nn.Linear(HIDDEN, WIDTH)
        self.keys = nn.Linear(WIDTH, WIDTH)
        self.mixed = nn.Linear(HIDDEN + 2 * WIDTH, HIDDEN)
        self.copy_query = nn.Linear(HIDDEN, WIDTH)
        self.copy_keys = nn.Linear(2 * WIDTH, WIDTH)
        self.written = nn.Linear(HIDDEN, WIDTH)
        self.bias = nn.Parameter(torch.zeros(common))

    def forward(self, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the logarithms of the probabilities of writing each common token, and of copying each token."""
        mask = batch["mask"].unsqueeze(-1)
        embedded = functional.embedding(batch["rows"], self.embedding)
        x = embedded + self.parts[batch["parts"]] + self.distances[batch["distances"]]
        for norm, convolution, dilation in zip(self.norms, self.convolutions, DILATIONS, strict=False):
            x = x + functional.relu(convolution(windows(norm(x) * mask, dilation)))
        x = self.norms[-1](x) * mask
        hole = x[torch.arange(len(x)), batch["hole"]]
        mean = x.sum(1) / mask.sum(1)
        start = torch.tanh(self.start(torch.cat([hole, mean], 1)))
        states, _ = self.recurrent(functional.embedding(batch["target_rows"], self.embedding), start.unsqueeze(0))
        blocked = ~batch["mask"].unsqueeze(1)
        scores = self.query(states) @ self.keys(x).transpose(1, 2) / WIDTH**0.5
        seen = scores.masked_fill(blocked, -1e9).softmax(-1) @ x
        mixed = functional.relu(self.mixed(torch.cat([states, seen, hole.unsqueeze(1).expand_as(seen)], -1)))
        before = functional.pad(x, (0, 0, 1, 0))[:, :-1]
        copy_keys = self.copy_keys(torch.cat([before, embedded], -1))
        copied = self.copy_query(mixed) @ copy_keys.transpose(1, 2) / WIDTH**0.5
        written = self.written(mixed) @ self.embedding[: self.common].T + self.bias
        both = torch.cat([written, copied.masked_fill(blocked, -1e9)], -1).log_softmax(-1)
        return both[..., : self.common], both[..., self.common :]

    def loss(self, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the sum of the negative logarithms of the probabilities of the missing tokens, and their number."""
        written, copied = self(batch)
        numbers = batch["numbers"]
        is_common = numbers < self.common
        own = written.gather(-1, numbers.clamp(max=self.common - 1).unsqueeze(-1)).squeeze(-1)
        same = (batch["outputs"].unsqueeze(1) == numbers.unsqueeze(-1)) & batch["mask"].unsqueeze(1)
        copies = copied.masked_fill(~same, -1e9).logsumexp(-1)
        total = torch.logaddexp(own.masked_fill(~is_common, -1e9), copies)
        real = batch["target_mask"]
        return -(total * real).sum(), real.sum()

    def arrays(self) -> dict[str, Any]:
        """Return the weights as NumPy arrays by name."""
        return {name: value.detach().numpy() for name, value in self.state_dict().items()}


def windows(x: Tensor, dilation: int) -> Tensor:
    """Return for each token those around it, one after the other."""
    reach = WINDOW // 2 * dilation
    length = x.shape[1]
    around = functional.pad(x, (0, 0, reach, reach))
    return torch.cat([around[:, k * dilation : k * dilation + length] for k in range(WINDOW)], -1)
