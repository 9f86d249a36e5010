"""Layers of torch_geometric, on the CPU and through torch_npu.

``aclnn torch-npu run [--soc-name NAME] -m tests.npu.graph_layers [NAME …]`` in an environment that
tests/npu/environment.py made, with ``PACKAGES`` added; a minute for all. Networks of each convolution, pooling and
norm take some steps of Adam on random graphs: their losses and the first gradients are compared. Exit status 1 where
one differs or is rejected for no known reason.
"""

from __future__ import annotations

import argparse
import copy
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch_npu  # noqa: F401  (it registers the device)
from torch import nn
from torch.nn import functional as F  # noqa: N812

PACKAGES = (
    "--no-deps torch_geometric aiohttp aiosignal aiohappyeyeballs attrs frozenlist multidict propcache psutil tqdm "
    "xxhash yarl scikit-learn scipy"
)
try:
    from torch_geometric import nn as layers
    from torch_geometric.data import Batch, Data
except ImportError as error:
    sys.exit(f"{error}: pip install {PACKAGES}")

FEATURES, EDGE_FEATURES, CLASSES, GRAPHS, STEPS = 16, 8, 4, 12, 5
LOSS_ROOM, GRADIENT_ROOM, TIMES = 1e-5, 1e-4, 16
"""Parts of a loss and of the largest gradient within which two agree, or times as far from float64 as the CPU's own."""
#: Reasons for what differs or is rejected.
KNOWN = {"ASAPooling": "torch_npu has no index_select of sparse tensors"}


def graph(seed: int) -> Data:
    numbers = torch.Generator().manual_seed(seed)
    nodes = 20 + seed
    edges = torch.randint(nodes, (2, 4 * nodes), generator=numbers)
    edges = torch.cat((edges, edges.flip(0)), 1)
    return Data(
        x=torch.randn(nodes, FEATURES, generator=numbers),
        edge_index=edges,
        edge_attr=torch.rand(edges.shape[1], EDGE_FEATURES, generator=numbers),
        y=torch.randint(CLASSES, (1,), generator=numbers),
        classes=torch.randint(CLASSES, (nodes,), generator=numbers),
    )


DATA = Batch.from_data_list([graph(seed) for seed in range(GRAPHS)])
DEGREES = torch.bincount(torch.bincount(DATA.edge_index[1]))


def perceptron(wide: int, out: int) -> nn.Module:
    return nn.Sequential(nn.Linear(wide, out), nn.ReLU(), nn.Linear(out, out))


def gcn() -> nn.Module:
    return layers.GCNConv(FEATURES, FEATURES)


def heads(kind: Any, **options: Any) -> Callable[[], nn.Module]:
    return lambda: kind(FEATURES, FEATURES // 4, heads=4, **options)


def square(kind: Any, *rest: Any, **options: Any) -> Callable[[], nn.Module]:
    return lambda: kind(FEATURES, FEATURES, *rest, **options)


#: Convolutions of nodes.
PLAIN: dict[str, Callable[[], nn.Module]] = {
    **{
        kind.__name__: square(kind)
        for kind in (
            *(layers.GCNConv, layers.GraphConv, layers.TAGConv, layers.ARMAConv, layers.ResGatedGraphConv),
            *(layers.LEConv, layers.ClusterGCNConv, layers.HypergraphConv, layers.SGConv),
        )
    },
    **{
        f"SAGEConv by {how}": square(layers.SAGEConv, aggr=how)
        for how in ("mean", "max", "min", "mul", "median", "std", "softmax", "powermean")
    },
    "ChebConv": square(layers.ChebConv, K=3),
    "EGConv": square(layers.EGConv, aggregators=["sum", "symnorm", "max"]),
    "GATConv": heads(layers.GATConv),
    "SuperGATConv": heads(layers.SuperGATConv),
    "GINConv": lambda: layers.GINConv(perceptron(FEATURES, FEATURES)),
    "EdgeConv": lambda: layers.EdgeConv(perceptron(2 * FEATURES, FEATURES)),
    "GatedGraphConv": lambda: layers.GatedGraphConv(FEATURES, 2),
    "APPNP": lambda: layers.APPNP(3, 0.1),
}
#: Convolutions of nodes and edges.
WITH_EDGES: dict[str, Callable[[], nn.Module]] = {
    "GATv2Conv": heads(layers.GATv2Conv, edge_dim=EDGE_FEATURES),
    "TransformerConv": heads(layers.TransformerConv, edge_dim=EDGE_FEATURES),
    "GINEConv": lambda: layers.GINEConv(perceptron(FEATURES, FEATURES), edge_dim=EDGE_FEATURES),
    "NNConv": square(layers.NNConv, perceptron(EDGE_FEATURES, FEATURES**2)),
    "CGConv": lambda: layers.CGConv(FEATURES, dim=EDGE_FEATURES),
    "GMMConv": square(layers.GMMConv, dim=EDGE_FEATURES, kernel_size=3),
    "GENConv": square(layers.GENConv, edge_dim=EDGE_FEATURES),
    "PNAConv": lambda: layers.PNAConv(
        FEATURES,
        FEATURES,
        ["mean", "min", "max", "std"],
        ["identity", "amplification", "attenuation"],
        deg=DEGREES,
        edge_dim=EDGE_FEATURES,
    ),
}
#: Poolings to a row for each graph; of those that keep edges, nodes are added up.
POOLINGS: dict[str, Callable[[], Any]] = {
    "global_mean_pool": lambda: layers.global_mean_pool,
    "global_max_pool": lambda: layers.global_max_pool,
    "global_add_pool": lambda: layers.global_add_pool,
    "Set2Set": lambda: layers.Set2Set(FEATURES, 3),
    "SortAggregation": lambda: layers.SortAggregation(5),
    "AttentionalAggregation": lambda: layers.AttentionalAggregation(perceptron(FEATURES, 1)),
    "QuantileAggregation": lambda: layers.QuantileAggregation([0.5]),
    "DeepSetsAggregation": lambda: layers.DeepSetsAggregation(*[perceptron(FEATURES, FEATURES) for _ in range(2)]),
    "SetTransformerAggregation": lambda: layers.SetTransformerAggregation(FEATURES, heads=2),
    "GraphMultisetTransformer": lambda: layers.GraphMultisetTransformer(FEATURES, k=4, heads=2),
    "MLPAggregation": lambda: layers.MLPAggregation(FEATURES, FEATURES, 40, num_layers=1, norm=None),
    "TopKPooling": lambda: layers.TopKPooling(FEATURES),
    "SAGPooling": lambda: layers.SAGPooling(FEATURES),
    "ASAPooling": lambda: layers.ASAPooling(FEATURES),
    "EdgePooling": lambda: layers.EdgePooling(FEATURES),
}
NORMS: dict[str, Callable[[], nn.Module]] = {
    "BatchNorm": lambda: layers.BatchNorm(FEATURES),
    "DiffGroupNorm": lambda: layers.DiffGroupNorm(FEATURES, 4),
    **{
        kind.__name__: lambda kind=kind: kind(FEATURES)
        for kind in (layers.GraphNorm, layers.InstanceNorm, layers.LayerNorm)
    },
    **{
        kind.__name__: lambda kind=kind: kind()
        for kind in (layers.PairNorm, layers.MeanSubtractionNorm, layers.GraphSizeNorm)
    },
}
WITHOUT_GRAPHS = ("BatchNorm", "DiffGroupNorm")


class Network(nn.Module):
    """Two convolutions, with a norm or a pooling, and classes of nodes or of graphs."""

    def __init__(self, name: str) -> None:
        super().__init__()
        make = PLAIN.get(name) or WITH_EDGES.get(name) or gcn
        self.name, self.first, self.second = name, make(), make()
        self.norm, self.pooling = NORMS[name]() if name in NORMS else None, POOLINGS.get(name, lambda: None)()
        self.out = nn.LazyLinear(CLASSES)

    def forward(self, data: Data) -> torch.Tensor:
        more = (data.edge_attr,) if self.name in WITH_EDGES else ()
        x = F.relu(self.first(data.x, data.edge_index, *more))
        if self.norm is not None:
            x = self.norm(x) if self.name in WITHOUT_GRAPHS else self.norm(x, data.batch)
        x = self.second(x, data.edge_index, *more)
        return self.out(x if self.pooling is None else self.pooled(x, data))

    def pooled(self, x: torch.Tensor, data: Data) -> torch.Tensor:
        if not self.name.endswith("Pooling"):
            return self.pooling(x, data.batch)
        found = self.pooling(x, data.edge_index, batch=data.batch)
        return layers.global_add_pool(found[0], found[2 if self.name == "EdgePooling" else 3], GRAPHS)


def trained(network: nn.Module, device: str, dtype: torch.dtype = torch.float32) -> tuple[list[Any], list[Any]]:
    """Train some steps; return the losses, and the gradients of the first step."""
    torch.manual_seed(1)
    network = copy.deepcopy(network).to(device, dtype)
    data = DATA.clone().to(device).apply(lambda each: each.to(dtype) if each.is_floating_point() else each)
    adam = torch.optim.Adam(network.parameters(), 1e-2)
    losses, gradients = [], []
    for _ in range(STEPS):
        adam.zero_grad()
        found = network(data)
        loss = F.cross_entropy(found, data.y if len(found) == GRAPHS else data.classes)
        loss.backward()
        gradients = gradients or [p.grad.cpu().double() for p in network.parameters() if p.grad is not None]
        adam.step()
        losses.append(loss.detach().cpu().double())
    return losses, gradients


def distances(expected: tuple[list[Any], list[Any]], got: tuple[list[Any], list[Any]]) -> list[list[float]]:
    """Return the largest differences of losses and of gradients, relative to the largest element."""
    return [
        [((a - b).abs().max() / a.abs().max().clamp_min(1e-30)).item() for a, b in zip(one, other, strict=True)]
        for one, other in zip(expected, got, strict=True)
    ]


def outcome(name: str) -> str:
    """Describe how a network's training differs; "agrees" within the tolerances."""
    torch.manual_seed(0)
    network = Network(name)
    with torch.no_grad():
        network(DATA)  # it tells lazy layers their width
    expected = trained(network, "cpu")
    try:
        got = trained(network, "npu")
    except Exception as error:
        return f"rejected: {error}"
    losses, gradients = distances(expected, got)
    text = f"losses by {max(losses):.1e}, gradients by {max(gradients, default=0.0):.1e}"
    if max(losses) < LOSS_ROOM and max(gradients, default=0.0) < GRADIENT_ROOM:
        return f"agrees: {text}"
    exact = trained(network, "cpu", torch.float64)
    ours, theirs = distances(exact, got), distances(exact, expected)
    for actual, other, room in zip(ours, theirs, (LOSS_ROOM, GRADIENT_ROOM), strict=True):
        if any(a > max(room, TIMES * b) for a, b in zip(actual, other, strict=True)):
            return f"differs: {text}"
    return f"agrees: {text}, as far as the CPU is from float64"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="what the layers' names contain; none: all")
    chosen = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    counts = Counter[str]()
    for name in (*PLAIN, *WITH_EDGES, *POOLINGS, *NORMS):
        if chosen.names and not any(each in name for each in chosen.names):
            continue
        text = outcome(name)
        kind, known = text.partition(":")[0], KNOWN.get(name, "")
        counts["for a known reason" if kind != "agrees" and known else kind] += 1
        print(f"{name}: {' '.join(text.split())[:300]}", known and f"({known})", flush=True)
    print(f"{counts['agrees']} of {counts.total()} layers agree; {dict(counts)}")
    return 1 if counts["differs"] or counts["rejected"] else 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # no exit handlers of torch's
