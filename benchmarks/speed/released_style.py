"""The released way of training the classifier, timed: every row of U scored in every epoch.

    .venv-bench/bin/python benchmarks/speed/released_style.py ROWS.npz [--epochs 2]

PyTorch, of our own writing after a description of the released code: raw (s, a, s'), a 256-256
network with two outputs, Adam 1e-3 with L2 5e-4, batches of 256 from P and from U; an epoch ends
with P's loader (32 updates for 8,000 rows). Before it, all rows of U are scored batch by batch and
the share alpha that looks most like the target is rejected; after it, alpha is estimated on
held-out rows.

Rows come through a ``DataLoader`` one by one, as they do there. ``sliced`` repeats the scoring on
slices of one tensor: what the same work costs without the loader.

`benchmarks/speed/filter.py` writes the rows: ``obs``, ``action``, ``next_obs``, ``labelled`` and
``part`` (0 train, 1 held out). Prints one JSON object.
"""

import argparse
import json
import math
import platform
import time
from collections.abc import Iterator

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]
from torch.utils.data import DataLoader, Dataset  # pyright: ignore[reportMissingImports]

BATCH = 256
DELTA, GAMMA = 0.1, 0.01
"""Confidence and slack of best bin estimation."""


class Rows(Dataset):
    """Rows one by one, each with its number."""

    def __init__(self, x: np.ndarray) -> None:
        self.x = torch.from_numpy(x)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        """One row and its number."""
        return index, self.x[index]


def main() -> None:
    """Train for a few epochs and say how long each part of each took."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("rows", help="npz file of rows")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    sets = read(args.rows)
    net = nn.Sequential(
        nn.Linear(sets["train_p"].x.shape[1], 256),
        nn.ReLU(),
        nn.Linear(256, 256),
        nn.ReLU(),
        nn.Linear(256, 2),
    )
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3, weight_decay=5e-4)
    alpha, epochs = 0.5, []
    for _ in range(args.epochs):
        begin = time.perf_counter()
        keep = ranked(net, sets["train_u"], alpha)
        ranked_at = time.perf_counter()
        num_updates = train(net, optimiser, sets["train_p"], sets["train_u"], keep)
        trained_at = time.perf_counter()
        alpha = best_bin(scores(net, sets["held_p"]), scores(net, sets["held_u"]))
        end = time.perf_counter()
        epochs.append(
            {
                "rank": ranked_at - begin,
                "train": trained_at - ranked_at,
                "alpha": end - trained_at,
                "total": end - begin,
                "num_updates": num_updates,
                "sliced_rank": sliced_seconds(net, sets["train_u"]),
            }
        )
    content = {
        "epochs": epochs,
        "alpha": alpha,
        "num_ranked": len(sets["train_u"]),
        "threads": torch.get_num_threads(),
        "versions": {"torch": torch.__version__, "python": platform.python_version()},
    }
    print(json.dumps(content))


def read(path: str) -> dict[str, Rows]:
    """Raw (s, a, s') of the training and of the held-out rows."""
    with np.load(path, allow_pickle=False) as file:
        x = np.concatenate([file["obs"], file["action"], file["next_obs"]], 1, dtype=np.float32)
        labelled, part = file["labelled"], file["part"]
    return {
        f"{name}_{kind}": Rows(x[(part == k) & mask])
        for k, name in enumerate(("train", "held"))
        for kind, mask in (("p", labelled), ("u", ~labelled))
    }


@torch.no_grad()
def scores(net: nn.Module, rows: Rows) -> torch.Tensor:
    """(n,) How likely each row is the target's, batch by batch through a loader."""
    result = torch.empty(len(rows))
    for index, x in DataLoader(rows, batch_size=BATCH):
        result[index] = torch.softmax(net(x), dim=1)[:, 0]
    return result


def ranked(net: nn.Module, rows: Rows, alpha: float) -> torch.Tensor:
    """(n,) bool. All but the share alpha that looks most like the target."""
    score = scores(net, rows)
    keep = torch.ones(len(rows), dtype=torch.bool)
    keep[torch.argsort(score)[len(rows) - int(alpha * len(rows)) :]] = False
    return keep


def train(
    net: nn.Module, optimiser: torch.optim.Optimizer, rows_p: Rows, rows_u: Rows, keep: torch.Tensor
) -> int:
    """One epoch: as many updates as there are batches of P; their number."""
    loss_of = nn.CrossEntropyLoss()
    num_updates = 0
    for x_p, (index_u, x_u) in zip(shuffled(rows_p), DataLoader(rows_u, BATCH, True), strict=False):
        x_kept = x_u[keep[index_u]]
        if len(x_kept) == 0:
            continue
        target_p = torch.zeros(len(x_p), dtype=torch.long)
        target_u = torch.ones(len(x_kept), dtype=torch.long)
        loss = 0.5 * (loss_of(net(x_p), target_p) + loss_of(net(x_kept), target_u))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        num_updates += 1
    return num_updates


def shuffled(rows: Rows) -> Iterator[torch.Tensor]:
    """Batches in random order, without their numbers."""
    for _, x in DataLoader(rows, BATCH, True):
        yield x


def best_bin(score_p: torch.Tensor, score_u: torch.Tensor) -> float:
    """Best bin estimation: the ratio of tails where its upper bound is lowest."""
    order = torch.sort(score_u, descending=True).values
    share_u = torch.arange(1, len(order) + 1) / len(order)
    above = len(score_p) - torch.searchsorted(torch.sort(score_p).values, order)
    share_p = above / len(score_p)
    slack = sum(math.sqrt(math.log(1 / DELTA) / (2 * len(s))) for s in (score_p, score_u))
    bound = (share_u + (1 + GAMMA) * slack) / share_p  # where no row of P is above: infinite
    best = int(torch.argmin(bound))
    return min(float(share_u[best] / share_p[best]), 0.999)


@torch.no_grad()
def sliced_seconds(net: nn.Module, rows: Rows) -> float:
    """Seconds to score all rows in the same batches, cut from one tensor."""
    begin = time.perf_counter()
    for start in range(0, len(rows), BATCH):
        torch.softmax(net(rows.x[start : start + BATCH]), dim=1)
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
