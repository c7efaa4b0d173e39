"""The picture of a packing: both sides show every pod of the recorded case."""

from pathlib import Path
from xml.etree import ElementTree

from karpenter_cases import answer, catalogue_file, load_catalogues
from packing_picture import cpu_requests, find_case, picture

CASES, NAME = Path(__file__).parent / "karpenter" / "cases", "host-ports-44d-23"
PICTURE = Path(__file__).parents[2] / "docs" / "pictures" / "packing.svg"


def pods(text: str) -> int:
    return sum(1 for each in ElementTree.fromstring(text).iter() if each.get("class") == "pod")


def test_the_picture_shows_every_pod_twice() -> None:
    case, catalogues = find_case(CASES, NAME), load_catalogues(catalogue_file(CASES))
    claims = answer(case["input"], catalogues, "optimise")["claims"]
    drawn = picture(case, claims, catalogues[case["input"]["catalogue"]])
    assert pods(drawn) == pods(PICTURE.read_text()) == 2 * len(cpu_requests(case))
    assert NAME in PICTURE.read_text()
