"""Errors of the simulation by set: a table and a picture beside it. `regenerate` calls it; rows of the data are not kept."""

import json
import re
import statistics
import subprocess
import sys
from pathlib import Path

# Medians (90th percentiles) of aiconfigurator 0.12 on rows of the same sources, in percent, as quoted in the project's issue tracker.
OTHERS = {
    "serving-tpot h100_sxm": "10 (24)",
    "serving-tpot h200_sxm": "25 (99)",
    "serving-tpot b200_sxm": "17 (37)",
    "serving-ttft": "50",
}
HERE = Path(__file__).parent
ROW = re.compile(r"\S+ (\S+) on (\S+), (\S+) (\S+), (\d+) in (\d+) out, tp (\d+) dp (\S*) experts (\S*) x (\S*) batch (\d+)")


def percentile(errors, share):
    ordered = sorted(errors)
    return ordered[max(-(-len(ordered) * share // 100) - 1, 0)]


def figures(errors):
    """Median and 90th percentile of absolute errors."""
    sizes = [abs(error) for error in errors]
    return statistics.median(sizes), percentile(sizes, 90)


def validated(program, arguments):
    run = subprocess.run([program, "validate", "--format", "json", *arguments], capture_output=True, text=True, check=False)
    if run.returncode:
        sys.exit(f"{' '.join(arguments)}: {run.stderr}")
    return json.loads(run.stdout)["sets"]


def half(found, name):
    return next((part for part in found["parts"] if part["name"].startswith(name)), None)


def kernels(program, data):
    """A line for each file of kernels and of collectives: rows answered, and the errors of the half that no constant was fitted to."""
    lines = []
    for chip in ["a100", "h100", "h200", "b200"]:
        for path in sorted(data.glob(f"{chip}_*.csv")):
            name = path.stem.removeprefix(f"{chip}_")
            if "training" in name:
                continue
            arch = f"dgx-{chip}" if name == "collectives" else chip
            found = validated(program, ["--arch", arch, "--data", str(path)])[0]
            answered = [row["error"] for row in found["rows"] if row["error"] is not None]
            second = half(found, "second half by hash")
            if second:
                errors = (second["median_error"], second["ninetieth_error"])
                lines.append((f"{chip} {name}", len(found["rows"]), len(answered), errors))
    return lines


def serving(program, data, models):
    files = [argument for path in sorted(data.glob("serving_*.csv")) for argument in ("--data", str(path))]
    where = ["--models", str(models)] if models else []
    sets = validated(program, [*files, *where])
    lines, fewest = [], []
    for found in sets:
        groups = {"": [row["error"] for row in found["rows"] if row["error"] is not None]}
        least = {}
        for row in found["rows"]:
            match = ROW.search(row["point"])
            if row["error"] is None or not match:
                continue
            model, system, engine, precision = match.groups()[:4]
            for key in (f" {system}", f" {system} {model} {engine} {precision}"):
                groups.setdefault(key, []).append(row["error"])
            key = (model, system, engine, precision, *match.groups()[4:10])
            users = int(match.group(11))
            if key not in least or users < least[key][0]:
                least[key] = (users, row["error"])
        rows = len(found["rows"])
        for key in sorted(groups):
            name = found["name"] + key
            lines.append((name, rows if not key else len(groups[key]), len(groups[key]), figures(groups[key])))
        for part in found["parts"]:
            if "half by hash" in part["name"]:
                errors = (part["median_error"], part["ninetieth_error"])
                lines.append((f"{found['name']}, {part['name']}", part["points"], part["points"], errors))
        if found["name"] == "serving-ttft":
            few = [error for users, error in least.values() if users <= 4]
            if few:
                fewest.append(("serving-ttft with at most 4 users: prefill, hardly any queueing", len(few), len(few), figures(few)))
    return lines + fewest


def picture(lines):
    """A bar to the median and a line to the 90th percentile, cut at 100 %."""
    width, left, row = 760, 330, 16
    height = row * len(lines) + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    scale = (width - left - 30) / 100
    for tick in range(0, 101, 20):
        x = left + tick * scale
        parts.append(f'<line x1="{x:.1f}" y1="10" x2="{x:.1f}" y2="{height - 26}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.1f}" y="{height - 10}" text-anchor="middle">{tick} %</text>')
    for at, (name, _, _, (median, ninetieth)) in enumerate(lines):
        y = 12 + row * at
        ends = [left + min(value * 100, 100) * scale for value in (median, ninetieth)]
        parts.append(f'<text x="{left - 6}" y="{y + 10}" text-anchor="end">{name}</text>')
        parts.append(f'<rect x="{left}" y="{y + 2}" width="{ends[0] - left:.1f}" height="10" fill="#4477aa"/>')
        parts.append(f'<line x1="{ends[0]:.1f}" y1="{y + 7}" x2="{ends[1]:.1f}" y2="{y + 7}" stroke="#222"/>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def main():
    program, data = sys.argv[1], Path(sys.argv[2])
    models = Path(sys.argv[3]) if len(sys.argv) > 3 else None
    of_kernels, of_serving = kernels(program, data), serving(program, data, models)
    pictured = of_kernels + [line for line in of_serving if line[0].count(" ") <= 1]
    (HERE / "errors.svg").write_text(picture(pictured))

    def table(lines, has_others):
        head = "| set | rows | answered | median error (90th percentile) |" + (" aiconfigurator 0.12 |" if has_others else "")
        text = [head, "| --- | --- | --- | --- |" + (" --- |" if has_others else "")]
        for name, rows, answered, (median, ninetieth) in lines:
            other = f" {OTHERS.get(name, '')} |" if has_others else ""
            text.append(f"| {name} | {rows} | {answered} | {median * 100:.1f} ({ninetieth * 100:.1f}) % |{other}")
        return "\n".join(text)

    template = (HERE / "README.md").read_text()
    for mark, text in [("kernels", table(of_kernels, False)), ("serving", table(of_serving, True))]:
        begin, end = f"<!-- {mark} -->", f"<!-- end of {mark} -->"
        before, rest = template.split(begin)
        template = before + begin + "\n" + text + "\n" + end + rest.split(end)[1]
    (HERE / "README.md").write_text(template)


main()
