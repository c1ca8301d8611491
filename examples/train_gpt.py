"""Train a character GPT on Python's own reference texts, on one process or on several.

    minitorch-run -n 2 examples/train_gpt.py
    minitorch-run -n 4 examples/train_gpt.py --checkpoint runs/gpt --resume
"""

import argparse
import math
import sys
import time

from tqdm import tqdm

import minitorch_gpu as mt
from minitorch_gpu import comm, data, io, nn, optim, parallel
from minitorch_gpu.nn import functional as F

OPTIONS = [  # name, type, default, help
    ("steps", int, 1500, "of the optimizer"), ("global-batch", int, 16, "over all ranks"),
    ("layers", int, 4, None), ("width", int, 128, None), ("heads", int, 4, None),
    ("context", int, 64, "characters seen"), ("dropout", float, 0.0, None),
    ("lr", float, 4e-3, "the highest"), ("seed", int, 0, None),
    ("log-every", int, 0, "steps; about 100 lines if 0"), ("text", str, None, "your own file"),
    ("checkpoint", str, None, "folder to save to"), ("checkpoint-every", int, 25, "steps"),
    ("sample", int, 400, "characters to write at the end"),
]


class Block(nn.Module):
    """Attention, then a two-layer MLP, each on normalised input and added to its input."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads, self.p, self.dropout = heads, dropout, nn.Dropout(dropout)

    def forward(self, x: mt.Tensor) -> mt.Tensor:
        batch, length, width = x.shape
        q, k, v = (  # (B, T, C) -> (B, H, T, C / H)
            part.reshape(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(width, dim=2))
        p = self.p * self.training
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
        x = x + self.dropout(self.out(mixed.transpose(1, 2).reshape(batch, length, width)))
        return x + self.dropout(self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh")))


class GPT(nn.Module):
    """Characters (B, T) -> logits (B, T, V) of the character that follows each."""

    def __init__(self, vocabulary: int, args: argparse.Namespace) -> None:
        super().__init__()
        self.context, self.embedded = args.context, 0
        self.token = nn.Embedding(vocabulary, args.width)
        self.position = nn.Embedding(args.context, args.width)
        self.dropout, self.norm = nn.Dropout(args.dropout), nn.LayerNorm(args.width)
        self.blocks = nn.Sequential(
            *(Block(args.width, args.heads, args.dropout) for _ in range(args.layers)))
        self.head = nn.Linear(args.width, vocabulary, bias=False)
        for embedding in (self.token, self.position):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, ids: mt.Tensor) -> mt.Tensor:
        self.embedded += ids.numel() * self.training
        x = self.token(ids) + self.position(mt.arange(ids.shape[1]))
        return self.head(self.norm(self.blocks(self.dropout(x))))

    @mt.no_grad()
    def sample(self, vocabulary: data.Vocabulary, length: int, temperature: float = 0.7) -> str:
        """``length`` characters, each drawn from the model's prediction."""
        ids = mt.tensor([vocabulary.encode("\n")])
        for _ in range(length):
            logits = self(ids[:, -self.context:])[0, -1] / temperature
            ids = mt.cat([ids, mt.multinomial(logits.softmax(0), 1).reshape(1, 1)], dim=1)
        return vocabulary.decode(ids[0, 1:].tolist())


def summed_loss(model: nn.Module, x: mt.Tensor, y: mt.Tensor) -> mt.Tensor:
    """Cross entropy summed over characters."""
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum")


@mt.no_grad()
def validate(model: nn.Module, dataset: data.Dataset, world: comm.Communicator) -> float:
    """Nats a character on the held-out text."""
    model.eval()
    sampler = data.DistributedBatchSampler(len(dataset), 64, world.rank, world.size,
                                           shuffle=False)
    total, count = 0.0, 0
    for x, y in data.DataLoader(dataset, batch_sampler=sampler):
        total, count = total + summed_loss(model, x, y).item(), count + y.numel()
    model.train()
    return parallel.global_mean(mt.tensor(total, dtype=mt.float64), count, world).item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, kind, default, text in OPTIONS:
        parser.add_argument(f"--{name}", type=kind, default=default, help=text)
    parser.add_argument("--resume", action="store_true", help="from the newest checkpoint")
    args = parser.parse_args()
    if args.resume and not args.checkpoint:
        parser.error("--resume needs --checkpoint, the folder to resume from")
    world = comm.init()
    mt.manual_seed(args.seed)
    train, held_out = data.CharacterDataset.train_and_validation(
        data.text_corpus(args.text), args.context)
    loader = data.DataLoader(train, batch_sampler=data.DistributedBatchSampler(
        len(train), args.global_batch, world.rank, world.size, seed=args.seed))
    gpt = GPT(len(train.vocabulary), args)
    model = parallel.DistributedDataParallel(gpt, world)
    optimizer = optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1)
    schedule = optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(
        (step + 1) / 100, 0.05 + 0.95 * (1 + math.cos(math.pi * step / args.steps)) / 2))
    state = dict(model=model, optimizer=optimizer, scheduler=schedule, sampler=loader,
                 generator=mt.random.default_generator(), comm=world)
    newest = io.latest_checkpoint(args.checkpoint, comm=world) if args.resume else None
    step = first = io.load_checkpoint(newest, **state).step if newest else 0
    every, start = args.log_every or max(args.steps // 100, 1), time.perf_counter()
    bar = tqdm(total=args.steps, initial=step, disable=world.rank or not sys.stderr.isatty())
    while step < args.steps:
        for x, y in loader:
            loss = parallel.global_mean(summed_loss(model, x, y), y.numel(), model)
            optimizer.zero_grad()
            loss.backward()
            optim.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            bar.update()
            step += 1
            if world.rank == 0 and (step % every == 0 or step == args.steps):
                bar.write(f"step {step}  loss {loss.item():.6f}", file=sys.stdout)
            if args.checkpoint and step % args.checkpoint_every == 0:
                io.save_checkpoint(args.checkpoint, step=step, **state)
            if step == args.steps:
                break
    bar.close()
    seconds, embedded = time.perf_counter() - start, world.all_gather_object(gpt.embedded)
    validation = validate(model, held_out, world)
    if world.rank == 0:
        print(f"{sum(embedded) / seconds:,.0f} tokens/s over steps {first + 1} to {step}, "
              f"tokens embedded per rank: {embedded}\nvalidation loss {validation:.6f}")
        print(gpt.eval().sample(train.vocabulary, args.sample))


if __name__ == "__main__":
    main()
