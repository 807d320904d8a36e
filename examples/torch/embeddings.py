"""Train a table of embeddings of words with sparse gradients, as an elastic job: which licence is a sentence from?

    elasticrun --workers 2 --servers 2 examples/torch/embeddings.py --epochs 10

A batch uses a few hundred of the table's 20,000 rows. With `sparse=True` its gradient has only those, and only those
travel and are updated: by SGD without momentum, and by Adagrad. The texts are the licences that every Debian has.
"""

import argparse
import json
import re
import zlib
from itertools import pairwise
from pathlib import Path

import torch
from licences import FOLDER, texts
from torch import nn
from torch.utils.data import Dataset

import elastic_ps.torch as elastic

ROWS = 20_000  # of the table; words and pairs of words have theirs by a checksum
WORDS = 12  # of a sample
GLOBAL_BATCH = 64
EVERY = 8  # so many samples in turn: one is for the test


class Sentences(Dataset):
    """Each sample is the rows of `WORDS` words in turn and of their pairs, and the number of the licence."""

    def __init__(self, found: dict[str, str], test: bool):
        self.samples = [
            (rows, number)
            for number, text in enumerate(found.values())
            for place, rows in enumerate(_samples(text))
            if (place % EVERY == 0) is test
        ]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        rows, number = self.samples[index]
        return torch.tensor(rows), number


def _samples(text: str) -> list[list[int]]:
    words = re.findall(r"[a-z]+", text.lower())
    parts = [words[low : low + WORDS] for low in range(0, len(words) - WORDS + 1, WORDS)]
    pairs = [[*part, *(f"{first} {second}" for first, second in pairwise(part))] for part in parts]
    return [[zlib.crc32(term.encode()) % ROWS for term in terms] for terms in pairs]


class Classifier(nn.Module):
    """A `Classifier` scores each licence by the mean of the rows."""

    def __init__(self, classes: int, width: int = 32):
        super().__init__()
        self.table = nn.EmbeddingBag(ROWS, width, mode="mean", sparse=True)
        self.score = nn.Linear(width, classes)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the scores."""
        return self.score(self.table(rows))


@torch.no_grad()
def accuracy(model: nn.Module, test: Sentences) -> float:
    rows = torch.tensor([rows for rows, _ in test.samples])
    numbers = torch.tensor([number for _, number in test.samples])
    return (model(rows).argmax(dim=1) == numbers).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--texts", type=Path, default=FOLDER, help="folder of texts (default: Debian's licences)")
    parser.add_argument("--out", type=Path, help="write the final test accuracy to this file as JSON")
    args = parser.parse_args()

    torch.manual_seed(1)
    found = texts(args.texts)
    train, test = Sentences(found, test=False), Sentences(found, test=True)
    model = Classifier(len(found))
    optimizer = elastic.Optimizer(model, torch.optim.Adagrad(model.parameters(), lr=0.1))
    loader = elastic.DataLoader(train, global_batch=GLOBAL_BATCH, shuffle=True)
    for epoch in elastic.epochs(args.epochs):
        for rows, numbers in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(rows), numbers)
            loss.backward()
            optimizer.step()
            elastic.report(loss=loss)
        if elastic.is_chief():
            print(f"epoch {epoch}: {accuracy(model, test):.3f} of sentences it has not seen are told right", flush=True)

    if elastic.is_chief() and args.out:
        args.out.write_text(json.dumps({"test_accuracy": accuracy(model, test), "epochs": args.epochs}))


if __name__ == "__main__":
    main()
