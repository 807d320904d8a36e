"""Train a small transformer to go on with texts, letter by letter, as an elastic job.

    elasticrun --workers 2 --servers 1 examples/torch/language_model.py --epochs 3

The texts are the licences that every Debian has; --texts takes another folder. Beside what `digits.py` shows: gradients
are clipped by the norm over all workers and servers, the embedding and the last layer are one weight, and a forward
pass may be made in bfloat16. Afterwards the weights are anybody's:

    elasticctl export language_model-1a2b -o model.safetensors     # while it trains
    python examples/torch/language_model.py --weights model.safetensors --say "The licensor"
"""

import argparse
import json
import math
from pathlib import Path

import torch
from licences import FOLDER, texts
from torch import nn
from torch.utils.data import Dataset

import elastic_ps.torch as elastic

LETTERS = 256  # of latin-1
CONTEXT = 64
GLOBAL_BATCH = 32
SAID = 200  # letters that --say goes on with
HELD_OUT = 0.1  # of each text, its end


class Windows(Dataset):
    """Each sample is `CONTEXT` letters, and the letters that come next."""

    def __init__(self, parts: list[str]):
        self.letters = torch.frombuffer(bytearray("".join(parts).encode("latin-1")), dtype=torch.uint8).long()

    def __len__(self) -> int:
        return (len(self.letters) - 1) // CONTEXT

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        window = self.letters[index * CONTEXT : (index + 1) * CONTEXT + 1]
        return window[:-1], window[1:]


class Transformer(nn.Module):
    """A `Transformer` scores the next letter, at each place of a window, by the letters up to there."""

    def __init__(self, width: int, layers: int, heads: int = 4):
        super().__init__()
        self.letter, self.place = nn.Embedding(LETTERS, width), nn.Embedding(CONTEXT, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.next = nn.Linear(width, LETTERS, bias=False)
        self.next.weight = self.letter.weight  # tied: one parameter of the job
        nn.init.normal_(self.letter.weight, std=0.05)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT), persistent=False)

    def forward(self, letters: torch.Tensor) -> torch.Tensor:
        """Return the scores."""
        length = letters.shape[1]
        embedded = self.letter(letters) + self.place(torch.arange(length, device=letters.device))
        return self.next(self.layers(embedded, self.mask[:length, :length], is_causal=True))


def loss_of(model: nn.Module, letters: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
    scores = model(letters.to(device_of(model)))
    return nn.functional.cross_entropy(scores.flatten(0, 1), following.to(scores.device).flatten())


def device_of(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


@torch.no_grad()
def bits_per_letter(model: nn.Module, windows: Windows) -> float:
    model.eval()
    batches = torch.utils.data.DataLoader(windows, 256)
    losses = [(loss_of(model, *batch).item(), len(batch[0])) for batch in batches]
    model.train()
    return sum(loss * count for loss, count in losses) / len(windows) / math.log(2)


@torch.no_grad()
def say(model: nn.Module, beginning: str) -> str:
    """Go on with a text, each time with the likeliest letter."""
    model.eval()
    found = list(beginning.encode("latin-1"))
    for _ in range(SAID):
        found.append(model(torch.tensor([found[-CONTEXT:]], device=device_of(model)))[0, -1].argmax().item())
    return bytes(found).decode("latin-1")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--width", type=int, default=64, help="of the model (default 64)")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--device", default="cpu", help="where this worker computes: cpu, cuda or cuda:1 (default cpu)")
    parser.add_argument("--bfloat16", action="store_true", help="forward passes in bfloat16")
    parser.add_argument("--texts", type=Path, default=FOLDER, help="folder of texts (default: Debian's licences)")
    parser.add_argument("--out", type=Path, help="write the result to this file as JSON")
    parser.add_argument("--weights", type=Path, help="load these weights and train nothing")
    parser.add_argument("--say", default="The", help="with --weights: what the model goes on with")
    args = parser.parse_args()

    torch.manual_seed(1)
    model = Transformer(args.width, args.layers).to(args.device)
    if args.weights:
        elastic.load(model, args.weights)
        print(say(model, args.say))
        return
    parts = list(texts(args.texts).values())
    train = Windows([part[: -int(HELD_OUT * len(part))] for part in parts])
    test = Windows([part[-int(HELD_OUT * len(part)) :] for part in parts])
    adamw = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    optimizer = elastic.Optimizer(model, adamw, max_norm=1.0)
    loader = elastic.DataLoader(train, global_batch=GLOBAL_BATCH, shuffle=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=args.epochs * len(loader) + 1)
    for epoch in elastic.epochs(args.epochs):
        for letters, following in loader:
            optimizer.zero_grad()
            with torch.autocast(device_of(model).type, torch.bfloat16, enabled=args.bfloat16):
                loss = loss_of(model, letters, following)
            loss.backward()
            optimizer.step()
            schedule.step()
            elastic.report(loss=loss)
        if elastic.is_chief():
            bits = bits_per_letter(model, test)
            elastic.report(bits_per_letter=bits)
            print(f"epoch {epoch}: {bits:.2f} bits a letter of text that it has not seen", flush=True)

    if elastic.is_chief() and args.out:
        args.out.write_text(json.dumps({"bits_per_letter": bits_per_letter(model, test), "epochs": args.epochs}))


if __name__ == "__main__":
    main()
