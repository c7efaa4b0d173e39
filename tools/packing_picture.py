"""
Draws the packing of a recorded case as SVG: what Karpenter decided, and what ``optimise`` decides.

Run as ``packing_picture.py tests/conformance/karpenter/cases host-ports-44d-23 --out
docs/pictures/packing.svg``. A column is a new node as high as its vCPUs, a block
is a pod as high as its CPU request.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from karpenter_cases import answer, case_files, catalogue_file, load_catalogues
from moxwell.scheduling.packing.instance_types import InstanceType
from moxwell.scheduling.packing.pod_parsing import pod_requests
from moxwell.scheduling.resource_lists import CPU, MILLI

Json = Mapping[str, Any]
HEIGHT, COLUMN, GAP, TOP, LEFT = 300.0, 84.0, 20.0, 74.0, 24.0
COLOURS = ("#4477aa", "#66ccee", "#228833", "#ccbb44", "#ee6677", "#aa3377")


def find_case(folder: Path, name: str) -> Json:
    """The case of a name."""
    for _, file in case_files(folder):
        for case in file["cases"]:
            if case["name"] == name:
                return dict(case)
    raise SystemExit(f"{folder} has no case {name}")


def cpu_requests(case: Json) -> dict[str, float]:
    """The vCPUs that each pod requests."""
    return {
        name: pod_requests(row["pod"]).get(CPU, 0) / MILLI
        for row in case["input"]["pods"]
        for name in row["names"]
    }


def columns(
    claims: Sequence[Json], types: Mapping[str, InstanceType]
) -> Iterator[tuple[str, float, Json]]:
    """Instance type, vCPUs and claim, the largest first; the cheapest type of a claim is used."""
    rows = [(c["instanceTypes"][0], c) for c in claims]
    sized = [(name, types[name].capacity[CPU] / MILLI, claim) for name, claim in rows]
    yield from sorted(sized, key=lambda row: (-row[1], row[0]))


def drawn(
    claims: Sequence[Json],
    types: Mapping[str, InstanceType],
    cpus: Mapping[str, float],
    left: float,
    scale: float,
) -> Iterator[str]:
    """The columns of one packing."""
    owners = sorted({name.rpartition("-")[0] for name in cpus})
    for number, (name, size, claim) in enumerate(columns(claims, types)):
        x, bottom = left + number * (COLUMN + GAP), TOP + HEIGHT
        yield (
            f'<rect x="{x:.0f}" y="{bottom - size * scale:.1f}" width="{COLUMN:.0f}" '
            f'height="{size * scale:.1f}" fill="#eeeeee" stroke="#555555"/>'
        )
        y = bottom
        for pod in sorted(claim["pods"]):
            height = cpus[pod] * scale
            y -= height
            colour = COLOURS[owners.index(pod.rpartition("-")[0]) % len(COLOURS)]
            yield (
                f'<rect class="pod" x="{x + 2:.0f}" y="{y:.1f}" width="{COLUMN - 4:.0f}" '
                f'height="{max(1.0, height - 1):.1f}" fill="{colour}"><title>{escape(pod)}: '
                f"{cpus[pod]:g} vCPU</title></rect>"
            )
        yield f'<text x="{x:.0f}" y="{bottom + 16:.0f}" font-size="10">{escape(name)}</text>'


def picture(case: Json, claims: Sequence[Json], types: Sequence[InstanceType]) -> str:
    """Both packings side by side."""
    known, cpus = {t.name: t for t in types}, cpu_requests(case)
    before: Sequence[Json] = case["expect"]["result"]["claims"]
    sizes = [size for each in (before, claims) for _, size, _ in columns(each, known)]
    scale, step = HEIGHT / max(sizes), COLUMN + GAP
    parts, left = [], LEFT
    for title, each in (("Karpenter", before), ("Moxwell, optimise", claims)):
        price = sum(c["price"] for c in each)
        text = f"{title}: {len(each)} nodes, {price:.3f} per hour"
        parts.append(f'<text x="{left:.0f}" y="44" font-size="15">{escape(text)}</text>')
        parts += drawn(each, known, cpus, left, scale)
        left += max(len(each) * step, 330) + 40
    caption = f"{len(cpus)} pods of the recorded case {case['name']}; heights are vCPUs"
    parts.append(f'<text x="{LEFT:.0f}" y="20" font-size="12">{escape(caption)}</text>')
    size = f'width="{left:.0f}" height="{TOP + HEIGHT + 30:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">'
    back = '<rect width="100%" height="100%" fill="white"/>'
    return "\n".join((head, back, *parts, "</svg>", ""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("case")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    case = find_case(arguments.folder, arguments.case)
    catalogues = load_catalogues(catalogue_file(arguments.folder))
    claims = answer(case["input"], catalogues, "optimise")["claims"]
    text = picture(case, claims, catalogues[case["input"]["catalogue"]])
    arguments.out.write_text(text)


if __name__ == "__main__":
    main()
