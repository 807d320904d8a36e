"""Train a character-level LSTM language model on a text that is on any Debian machine, as an elastic job.

    elasticrun --workers 2 --servers 2 examples/lstm.py --epochs 6

The text is cut into whole sequences, and each starts from a zero state: a sample is then independent of what its
worker saw before, so that any worker can take it.
"""
# ruff: noqa: I001  # elastic_ps.mxnet comes before mxnet, which it makes importable beside numpy 1.26

import argparse
import json
import math
from pathlib import Path

import elastic_ps.mxnet

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon import nn, rnn

GLOBAL_BATCH = 32
LENGTH = 48  # characters of a sequence
TEXTS = (Path("/usr/share/common-licenses/GPL-3"), Path(__file__).parents[1] / "README.md")


def data() -> tuple[gluon.data.ArrayDataset, gluon.data.ArrayDataset, int]:
    """Return sequences of letters, each with the one that follows it: training set, test set (a tenth), vocabulary."""
    text = next(path for path in TEXTS if path.exists()).read_text(encoding="utf-8")
    letters = {letter: number for number, letter in enumerate(sorted(set(text)))}
    codes = np.array([letters[letter] for letter in text], dtype="float32")
    count = (len(codes) - 1) // LENGTH
    inputs = codes[: count * LENGTH].reshape(count, LENGTH)
    following = codes[1 : count * LENGTH + 1].reshape(count, LENGTH)
    test = np.arange(count) % 10 == 0
    return (
        gluon.data.ArrayDataset(inputs[~test], following[~test]),
        gluon.data.ArrayDataset(inputs[test], following[test]),
        len(letters),
    )


class LanguageModel(gluon.HybridBlock):
    """This model takes letters, (N, T), and gives logits of the next letter, (N, T, vocabulary)."""

    def __init__(self, vocabulary: int, hidden: int = 96):
        super().__init__()
        with self.name_scope():
            self.embedding = nn.Embedding(vocabulary, 32)
            self.lstm = rnn.LSTM(hidden, layout="NTC", input_size=32)
            self.output = nn.Dense(vocabulary, flatten=False, in_units=hidden)

    def hybrid_forward(self, F, letters):  # noqa: D102, N803  # Gluon's signature
        return self.output(self.lstm(self.embedding(letters)))


def bits(net: LanguageModel, test: gluon.data.ArrayDataset) -> float:
    """Return the cross-entropy on the test set in bits per character."""
    inputs, following = (mx.nd.array(part) for part in test[:])
    loss = gluon.loss.SoftmaxCrossEntropyLoss()(net(inputs), following)
    return float(loss.mean().asscalar()) / math.log(2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--out", type=Path, help="write the final test bits per character to this file as JSON")
    args = parser.parse_args()

    mx.random.seed(1)
    train, test, vocabulary = data()
    net = LanguageModel(vocabulary)
    net.initialize(mx.init.Xavier())
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(
        net.collect_params(), "adam", {"learning_rate": 0.02, "clip_gradient": 5}, kvstore="dist_elastic"
    )
    loader = elastic_ps.mxnet.ElasticDataLoader(train, GLOBAL_BATCH)
    for epoch in elastic_ps.epochs(args.epochs):
        for step, _indices, (letters, following) in loader:
            with autograd.record():
                loss = loss_of(net(letters), following)  # one number per sequence
            loss.backward()
            trainer.step(GLOBAL_BATCH)
            elastic_ps.report(step, loss=loss.mean().asscalar())
        if elastic_ps.is_chief():
            score = bits(net, test)
            elastic_ps.report(step, bits_per_character=score)
            print(f"epoch {epoch}: {score:.3f} bits per character", flush=True)

    if elastic_ps.is_chief():
        result = {"bits_per_character": bits(net, test), "epochs": args.epochs}
        print(json.dumps(result), flush=True)
        if args.out:
            args.out.write_text(json.dumps(result))


if __name__ == "__main__":
    main()
