"""Train an MLP or a CNN on scikit-learn's handwritten digits, on one process or on several.

    python examples/train_digits.py --model cnn
    minitorch-run -n 2 examples/train_digits.py --model mlp
"""

from __future__ import annotations

import argparse
import time

import minitorch_gpu as mt
from minitorch_gpu import comm, data, nn, optim, parallel
from minitorch_gpu.nn import functional as F


class MLP(nn.Module):
    """64 pixels -> 256 -> 256 -> 10 digits."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(),
            nn.Linear(64, 256), nn.ReLU(), nn.Dropout(dropout),
            nn.Linear(256, 256), nn.ReLU(), nn.Dropout(dropout),
            nn.Linear(256, 10),
        )

    def forward(self, images: mt.Tensor) -> mt.Tensor:
        return self.layers(images)


class CNN(nn.Module):
    """Two 3x3 convolutions, each with pooling, then two linear layers."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.hidden = nn.Linear(64 * 2 * 2, 128)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(128, 10)

    def forward(self, images: mt.Tensor) -> mt.Tensor:
        x = F.max_pool2d(F.relu(self.conv1(images)), 2)   # (B, 32, 4, 4)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)        # (B, 64, 2, 2)
        return self.head(self.dropout(F.relu(self.hidden(x.flatten(1)))))


def loader(dataset: data.Dataset, args: argparse.Namespace, world: comm.Communicator,
           shuffle: bool) -> data.DataLoader:
    sampler = data.DistributedBatchSampler(
        len(dataset), args.global_batch, world.rank, world.size, shuffle=shuffle, seed=args.seed
    )
    return data.DataLoader(dataset, batch_sampler=sampler)


@mt.no_grad()
def accuracy(model: nn.Module, batches: data.DataLoader, world: comm.Communicator) -> float:
    """The share of held-out digits that the model names right, over all ranks."""
    model.eval()
    right, count = 0, 0
    for images, labels in batches:
        right += (model(images).argmax(1) == labels).sum().item()
        count += len(labels)
    model.train()
    return parallel.global_mean(mt.tensor(float(right)), count, world).item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=("mlp", "cnn"), default="mlp")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--global-batch", type=int, default=64, help="over all ranks")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--dropout", type=float, default=0.3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    world = comm.init()
    mt.manual_seed(args.seed)
    train = loader(data.digits("train"), args, world, shuffle=True)
    test = loader(data.digits("test"), args, world, shuffle=False)
    model = {"mlp": MLP, "cnn": CNN}[args.model](args.dropout)
    model = parallel.DistributedDataParallel(model, world)
    optimizer = optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)

    start = time.perf_counter()
    for epoch in range(1, args.epochs + 1):
        for images, labels in train:
            total = F.cross_entropy(model(images), labels, reduction="sum")
            loss = parallel.global_mean(total, len(labels), model)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
        right = accuracy(model, test, world)
        if world.rank == 0:
            print(f"epoch {epoch:2d}  loss {loss.item():.6f}  accuracy {right:.2%}", flush=True)
    if world.rank == 0:
        print(f"accuracy {right:.2%} after {time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
