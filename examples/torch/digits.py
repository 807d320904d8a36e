"""Train a convolutional network of PyTorch on handwritten digits as an elastic job.

    elasticrun --workers 2 --servers 1 examples/torch/digits.py --epochs 10

While it trains, change the numbers of workers and servers with `elasticctl scale`. The lines marked `# elastic` are
all that a plain PyTorch script needs; those marked `# live` hand numbers over to `elasticctl watch` and may be left
out.
"""

import argparse
import json
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

import elastic_ps.torch as elastic  # elastic

GLOBAL_BATCH = 64  # samples of a step over all workers, however many there are


def data() -> tuple[TensorDataset, TensorDataset]:
    """Return 1,437 training and 360 test images of 1 x 8 x 8 pixels in [0, 1]; the same split in every process."""
    digits = load_digits()
    images = torch.tensor(digits.images[:, None] / 16, dtype=torch.float32)
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    test, train = order[:360], order[360:]
    return TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


@torch.no_grad()
def accuracy(model: nn.Module, test: TensorDataset) -> float:
    device = next(model.parameters()).device
    images, labels = (tensor.to(device) for tensor in test.tensors)
    model.eval()
    right = (model(images).argmax(dim=1) == labels).float().mean().item()
    model.train()
    return right


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.1, help="first learning rate (default 0.1)")
    parser.add_argument("--device", default="cpu", help="where this worker computes: cpu, cuda or cuda:1 (default cpu)")
    parser.add_argument("--loaders", type=int, default=0, help="processes that load data (default: none)")
    parser.add_argument("--out", type=Path, help="write the final test accuracy to this file as JSON")
    args = parser.parse_args()

    torch.manual_seed(1)
    train, test = data()
    model = network().to(args.device)
    loss_of = nn.CrossEntropyLoss()
    sgd = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    optimizer = elastic.Optimizer(model, sgd)  # elastic
    loader = elastic.DataLoader(train, global_batch=GLOBAL_BATCH, num_workers=args.loaders, shuffle=True)  # elastic
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    for epoch in elastic.epochs(args.epochs):  # elastic
        for images, labels in loader:
            optimizer.zero_grad()
            loss = loss_of(model(images.to(args.device)), labels.to(args.device))
            loss.backward()
            optimizer.step()
            elastic.report(loss=loss)  # live
        schedule.step()
        if elastic.is_chief():  # elastic
            score = accuracy(model, test)
            elastic.report(accuracy=score)  # live
            print(f"epoch {epoch}: test accuracy {score:.3f}", flush=True)

    if elastic.is_chief():
        result = {"test_accuracy": accuracy(model, test), "epochs": args.epochs}
        print(json.dumps(result), flush=True)
        if args.out:
            args.out.write_text(json.dumps(result))


if __name__ == "__main__":
    main()
