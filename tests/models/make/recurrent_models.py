"""Recurrent networks of the placement literature: the PTB language model and a GNMT-like translator.

PTB after Zaremba et al. 2014 (arXiv 1409.2329): ``large`` as two LSTM operators of 1500, ``medium`` (650) unrolled over
20 steps, the wide graph that placement papers schedule. GNMT after Wu et al. 2016 (arXiv 1609.08144): a bidirectional
layer below three more encoder layers with residuals, four decoder layers, attention, batch 4, 25 tokens.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch
from torch import nn

from tests.models.make.common import make_models
from tests.models.make.torch_export import export_module

PTB_VOCABULARY = 10_000
GNMT_VOCABULARY = 32_000
PTB_HIDDEN = 1500
NAMES = ("ptb_lstm_unrolled", "ptb_lstm", "gnmt")


class PTB(nn.Module):
    """Two LSTM operators, states in and out."""

    def __init__(self, hidden: int = PTB_HIDDEN, layers: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(PTB_VOCABULARY, hidden)
        self.lstm = nn.LSTM(hidden, hidden, layers, batch_first=True)
        self.output = nn.Linear(hidden, PTB_VOCABULARY)

    def forward(
        self, tokens: torch.Tensor, h: torch.Tensor, c: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        y, (h, c) = self.lstm(self.embedding(tokens), (h, c))
        return self.output(y), h, c


class PTBUnrolled(nn.Module):
    """LSTM cells unrolled over time."""

    def __init__(self, hidden: int = 650, layers: int = 2, steps: int = 20) -> None:
        super().__init__()
        self.hidden = hidden
        self.steps = steps
        self.embedding = nn.Embedding(PTB_VOCABULARY, hidden)
        self.cells = nn.ModuleList([nn.LSTMCell(hidden, hidden) for _ in range(layers)])
        self.output = nn.Linear(hidden, PTB_VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        zeros = torch.zeros(tokens.shape[0], self.hidden)
        states = [(zeros, zeros) for _ in self.cells]
        embedded = self.embedding(tokens)
        outputs = []
        for step in range(self.steps):
            y = embedded[:, step]
            for layer, cell in enumerate(self.cells):
                states[layer] = cell(y, states[layer])
                y = states[layer][0]
            outputs.append(self.output(y))
        return torch.stack(outputs, 1)


class GNMT(nn.Module):
    """Encoder and decoder of LSTM operators with attention in between."""

    def __init__(self, hidden: int = 1024, layers: int = 4) -> None:
        super().__init__()
        self.source = nn.Embedding(GNMT_VOCABULARY, hidden)
        self.target = nn.Embedding(GNMT_VOCABULARY, hidden)
        self.bidirectional = nn.LSTM(hidden, hidden // 2, batch_first=True, bidirectional=True)
        self.encoder = nn.ModuleList([nn.LSTM(hidden, hidden, batch_first=True) for _ in range(layers - 1)])
        self.decoder_0 = nn.LSTM(hidden, hidden, batch_first=True)
        self.decoder = nn.ModuleList([nn.LSTM(2 * hidden, hidden, batch_first=True) for _ in range(layers - 1)])
        self.attention = nn.Linear(hidden, hidden)
        self.output = nn.Linear(2 * hidden, GNMT_VOCABULARY)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        x, _ = self.bidirectional(self.source(source))
        for index, layer in enumerate(self.encoder):
            y, _ = layer(x)
            x = x + y if index else y
        d, _ = self.decoder_0(self.target(target))
        attended = torch.softmax(self.attention(d) @ x.transpose(1, 2), -1) @ x
        for index, layer in enumerate(self.decoder):
            y, _ = layer(torch.cat([d, attended], -1))
            d = d + y if index else y
        return self.output(torch.cat([d, attended], -1))  # type: ignore[no-any-return]


def _export(name: str, path: Path) -> None:
    torch.manual_seed(0)
    tokens = torch.randint(0, PTB_VOCABULARY, (8, 20))
    if name == "ptb_lstm":
        state = torch.zeros(2, 8, PTB_HIDDEN)
        export_module(PTB(), (tokens, state, state.clone()), path, input_names=["tokens", "h", "c"])
    elif name == "ptb_lstm_unrolled":
        export_module(PTBUnrolled(), (tokens,), path, input_names=["tokens"])
    else:
        sentences = torch.randint(0, GNMT_VOCABULARY, (4, 25)), torch.randint(0, GNMT_VOCABULARY, (4, 25))
        export_module(GNMT(), sentences, path, input_names=["source", "target"])


if __name__ == "__main__":
    torch.set_num_threads(1)
    make_models("recurrent", {name: partial(_export, name) for name in NAMES})
