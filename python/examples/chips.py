"""A pruned feed-forward block on three chips: which is fastest, by how much, and how far the answer can be off."""

import rdusim as rs


def told(result: rs.Result) -> list[str]:
    """A line for each chip: time of the fused run, and how many times as fast the first chip is."""
    first = result.fused
    lines = [f"{result.arch.name}: {first.time_s * 1e6:.1f} us, bound by {first.bound_by}"]
    for other in result.others:
        factor = other.fused.time_s / first.time_s
        lines.append(f"{other.arch.name}: {other.fused.time_s * 1e6:.1f} us, {factor:.2f} times as long")
    return lines


def main() -> None:
    """Compares, and looks at the mask that decides."""
    result = rs.compare("sn40l", "tiny-mlp", against=["h100", "a100"])
    print("\n".join(told(result)))
    mask = rs.sparsity("block", block=(16, 16), shape=(512, 512), density=0.125)
    kept: int = mask.kept_blocks
    print(f"{kept} of {mask.blocks} blocks are kept, stored as {mask.chosen}")
    picture: rs.Picture = mask.plot()
    print(picture.title)


if __name__ == "__main__":
    main()
