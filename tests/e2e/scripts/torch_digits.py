"""examples/torch/digits.py at a pace of its own, until the test writes FOLDER/finish; writes FOLDER/weights.pt.

torch_digits.py FOLDER [--loaders N] [--device DEVICE]
"""

import argparse
import time
from pathlib import Path

import torch
from ending import last_epoch

import elastic_ps.torch as elastic
from examples.torch.digits import GLOBAL_BATCH, accuracy, data, network

PACE = 0.02  # seconds of each step


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--loaders", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    torch.manual_seed(1)
    train, test = data()
    model = network().to(arguments.device)
    loss_of = torch.nn.CrossEntropyLoss()
    optimizer = elastic.Optimizer(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
    loader = elastic.DataLoader(train, GLOBAL_BATCH, num_workers=arguments.loaders, shuffle=True)
    for epoch in elastic.epochs(1_000_000):
        for images, labels in loader:
            optimizer.zero_grad()
            loss = loss_of(model(images.to(arguments.device)), labels.to(arguments.device))
            loss.backward()
            optimizer.step()
            elastic.report(loss=loss)
            time.sleep(PACE)
        if epoch == last_epoch(arguments.folder, epoch, None):
            break
    if elastic.is_chief():
        result = {"epochs": epoch + 1, "accuracy": accuracy(model, test), "model": model.cpu().state_dict()}
        torch.save(result, arguments.folder / "weights.pt")


if __name__ == "__main__":
    main()
