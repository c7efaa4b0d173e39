"""kubectl with custom resources."""

from apisuite.case import case, kubectl
from apisuite.cases.bodies import crd
from apisuite.cases.crds import COLUMNS, made

D = made(crd(additionalPrinterColumns=COLUMNS))
W = "apiVersion: $u.example.com/v1\nkind: Widget\nmetadata: {name: w}\nspec: {size: 4, tags: [x, z], parts: [{id: a}]}\n"
N = "apiVersion: $u.example.com/v1\nkind: Widget\nmetadata: {name: w}\nspec: {size: 5, colour: red}\n"
KIND = "widgets.$u.example.com"
SPEC = kubectl(f"get {KIND} w -o jsonpath={{.spec}}")

CASES = (
    case(
        "apply and get",
        *D,
        kubectl("apply -f -", W),
        kubectl(f"get {KIND}"),
        kubectl(f"get {KIND} -o wide"),
        kubectl(f"get {KIND} w -o yaml"),
    ),
    case(
        "apply twice and change",
        *D,
        kubectl("apply -f -", W),
        kubectl("apply -f -", W),
        kubectl("apply -f -", N),
        SPEC,
    ),
    case(
        "apply on the server",
        *D,
        kubectl("apply --server-side -f -", W),
        kubectl("apply --server-side -f -", N),
        SPEC,
        kubectl("apply --server-side --field-manager=x -f -", W),
    ),
    case("a value out of bounds", *D, kubectl("apply -f -", W.replace("size: 4", "size: 40"))),
    case("an unknown field", *D, kubectl("apply -f -", W.replace("size: 4", "sise: 4"))),
    case("describe", *D, kubectl("apply -f -", W), kubectl(f"describe {KIND} w")),
    case(
        "explain",
        *D,
        kubectl(f"explain {KIND}.spec", until="FIELDS"),
        kubectl(f"explain {KIND}.spec.size"),
        kubectl(f"explain {KIND}.spec.nope"),
    ),
    case("explain all of it", *D, kubectl(f"explain {KIND} --recursive", until="FIELDS")),
    case(
        "scale",
        *D,
        kubectl("apply -f -", W),
        kubectl(f"scale {KIND} w --replicas=3"),
        kubectl(f"get {KIND} w -o jsonpath={{.spec.replicas}}"),
    ),
    case(
        "patch",
        *D,
        kubectl("apply -f -", W),
        kubectl(f"""patch {KIND} w --type=merge -p '{{"spec":{{"size":7}}}}'"""),
        kubectl(f"""patch {KIND} w -p '{{"spec":{{"size":8}}}}'"""),
        SPEC,
    ),
    case(
        "patch of status",
        *D,
        kubectl("apply -f -", W),
        kubectl(
            f"""patch {KIND} w --subresource=status --type=merge -p '{{"status":{{"phase":"Ready"}}}}'"""
        ),
        kubectl(f"get {KIND} w -o wide"),
        kubectl(f"wait {KIND}/w --for=jsonpath={{.status.phase}}=Ready --timeout=5s"),
    ),
    case(
        "label, annotate, delete",
        *D,
        kubectl("apply -f -", W),
        kubectl(f"label {KIND} w a=b"),
        kubectl(f"annotate {KIND} w c=d"),
        kubectl(f"delete {KIND} w"),
        kubectl(f"get {KIND}"),
    ),
    case(
        "diff",
        *D,
        kubectl("apply -f -", W),
        kubectl("diff -f -", W),
        kubectl("diff -f -", N, show="code"),
    ),
    case(
        "the definition itself",
        *D,
        kubectl(f"get crd {KIND} -o jsonpath={{.status.acceptedNames}}"),
        kubectl(f"wait crd/{KIND} --for=condition=Established --timeout=5s"),
    ),
    case("replace", *D, kubectl("create -f -", W), kubectl("replace -f -", N), SPEC),
)
