"""Train a convolutional PyTorch module on hand-written digits in one call, alone or as a job.

    python examples/torch_train.py
    poprun-py --num-instances 2 --num-replicas 4 python examples/torch_train.py --checkpoints runs/digits

It needs pip install 'poprun-py[torch]'.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import nn

import ipu_emu.torch
import popdist_py

DATA = Path(__file__).parent / "data" / "digits.csv.gz"
TEST = 360


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Images [n, 1, 8, 8] from -1 to 1 and their labels, in an order that is equal on all instances."""
    table = np.loadtxt(DATA, delimiter=",", dtype=np.uint8)[np.random.default_rng(0).permutation(1797)]
    images = torch.from_numpy(table[:, :-1] / 8.0 - 1).float()
    return images.reshape(-1, 1, 8, 8), torch.from_numpy(table[:, -1]).long()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--ipus", type=int, help="IPUs of a replica, which form a pipeline")
    parser.add_argument("--checkpoints", help="a folder, from which a later run continues")
    args = parser.parse_args()
    images, labels = digits()
    module = nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(512, 10)),
    )
    ipu_emu.torch.train(
        module,
        nn.CrossEntropyLoss(),
        torch.optim.Adam(module.parameters(), 3e-3),
        (images[TEST:], labels[TEST:]),
        batch_size=64,
        epochs=args.epochs,
        ipus=args.ipus,
        checkpoints=args.checkpoints,
    )
    classes = module.eval()(images[:TEST]).argmax(1)
    if popdist_py.getInstanceIndex() == 0:
        print(f"recognised {(classes == labels[:TEST]).float().mean():.1%} of the test images")


if __name__ == "__main__":
    main()
