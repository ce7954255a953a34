"""A what-if study: a table of points, the best of them, and why it is better than where it began."""

import rdusim as rs


def best(table: rs.Table, metric: str) -> dict[str, object]:
    """The row with the least of a metric."""
    column: list[float] = table[metric]
    rows: list[dict[str, object]] = list(table)
    return rows[column.index(min(column))]


def main() -> None:
    """Sweeps the launch time of a chip, and explains the chip as it is."""
    chip, workload = rs.Chip("sn10"), rs.Workload("tiny-mlp")
    axis = "arch.launch.software.program_load_us"
    study = rs.Study(chip, workload, axes={axis: [1, 6, 12]}, metrics=["fused.time_s"])
    table = rs.sweep(study, progress=False)
    found = best(table, "fused.time_s")
    print(f"{len(table)} points, the best at {axis} = {found[axis]}")
    before = rs.run(chip, workload)
    after = rs.run(chip.with_({"launch.software.program_load_us": 1}), workload)
    change = rs.diff(before, after)
    print([field.field for field in change.inputs])
    print(rs.map(chip, workload).sections[0].name)


if __name__ == "__main__":
    main()
