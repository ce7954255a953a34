"""Networks of torch, exported for real. Torch is not among the packages of CI: `pip install torch` runs these."""

import math

import pytest

import rdusim as rs

torch = pytest.importorskip("torch", reason="torch is not installed")
nn, functional = torch.nn, torch.nn.functional


class Block(nn.Module):
    """A block of GPT: 64 wide, four heads."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(64), nn.LayerNorm(64)
        self.qkv, self.out = nn.Linear(64, 192), nn.Linear(64, 64)
        self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)

    def attention(self, q, k, v):
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    def forward(self, x):
        rows = x.shape
        heads = (part.view(*rows[:2], 4, 16).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.out(self.attention(*heads).transpose(1, 2).reshape(rows))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class InPieces(Block):
    """The same with attention written out."""

    def attention(self, q, k, v):
        scores = q @ k.transpose(-2, -1) / math.sqrt(16)
        mask = torch.tril(torch.ones(q.shape[2], q.shape[2], dtype=torch.bool))
        return scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v


class Gpt(nn.Module):
    """Two blocks between embedding and logits."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(128, 64), nn.Embedding(32, 64)
        self.blocks, self.norm = nn.Sequential(Block(), Block()), nn.LayerNorm(64)
        self.logits = nn.Linear(64, 128, bias=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        return self.logits(self.norm(self.blocks(x)))


def cnn():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )


#: Modules, their inputs, and the multiply-accumulates of their products; of attention all pairs of tokens.
X = torch.zeros(2, 16, 64)
OF_A_BLOCK = 32 * 64 * (192 + 64 + 256 + 256) + 2 * 2 * 4 * 16 * 16 * 16
MODULES = {
    "block": (Block(), X, OF_A_BLOCK),
    "in pieces": (InPieces(), X, OF_A_BLOCK),
    "gpt": (Gpt(), torch.zeros(2, 16, dtype=torch.long), 2 * OF_A_BLOCK + 32 * 64 * 128),
    "cnn": (cnn(), torch.zeros(2, 3, 32, 32), 2 * (32 * 32 * 27 * 16 + 8 * 8 * 144 * 32 + 32 * 10)),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules_are_workloads_that_compute_what_they_say(name):
    module, inputs, macs = MODULES[name]
    workload = rs.from_torch(module.eval(), (inputs,))
    assert rs.run("sn40l", workload).workload.dense_flops == 2 * macs
    rs.verify("sn40l", workload)


def test_an_open_batch_is_given_a_size():
    module = Block().eval()
    shapes = ({0: torch.export.Dim("batch")},)
    with pytest.raises(rs.InputError, match="leaves the dimension") as caught:
        rs.from_torch(module, (X,), dynamic_shapes=shapes)
    symbol = caught.value.message.split("`")[3]
    open_batch = rs.from_torch(module, (X,), dynamic_shapes=shapes, dim={symbol: 2})
    assert rs.run("sn40l", open_batch).fused.cycles == rs.run("sn40l", rs.from_torch(module, (X,))).fused.cycles


@pytest.mark.parametrize("letters", range(6, 11))
def test_an_archive_of_any_name_is_read(tmp_path, letters):
    path = tmp_path / ("n" * letters + ".pt2")
    torch.export.save(torch.export.export(cnn().eval(), (MODULES["cnn"][1],)).run_decompositions(), path)
    # Two convolutions and a product.
    assert [operator.kind for operator in rs.Workload(path).info.operators].count("gemm") == 3


def test_its_weights_may_be_pruned(cli, tmp_path):
    path = tmp_path / "block.pt2"
    torch.export.save(torch.export.export(Block().eval(), (X,)), path)
    cli("import", str(path), "--density", "0.5", "--block", "16x16", "-o", str(tmp_path / "block.toml"))
    pruned, dense = (rs.run("sn40l", rs.Workload(tmp_path / name)).workload for name in ("block.toml", "block.pt2"))
    assert pruned.dense_flops == dense.dense_flops and pruned.parameters < dense.parameters
    rs.verify("sn40l", tmp_path / "block.toml")
