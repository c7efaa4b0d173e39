"""kubectl apply, client-side and server-side: diff, prune, conflicts."""

from apisuite.case import case, kubectl

ONE = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: v, l: w}\n"
TWO = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: new}\n"
BAD = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndta: {k: new}\n"
LIST = """
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {set: one}}}
- {apiVersion: v1, kind: Secret, metadata: {name: s, labels: {set: one}}, stringData: {a: b}}
"""
LESS = """
apiVersion: v1
kind: ConfigMap
metadata: {name: a, labels: {set: one}}
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
spec:
  replicas: 0
  selector: {matchLabels: {app: x}}
  template:
    metadata: {labels: {app: x}}
    spec:
      containers:
      - {name: main, image: registry.example/x:1, env: [{name: A, value: "1"}]}
"""
CHANGED = DEPLOYMENT.replace(
    'env: [{name: A, value: "1"}]', 'env: [{name: B, value: "2"}], args: [x]'
)
DATA = kubectl("get cm a -o jsonpath={.data}")
MANAGERS = kubectl(
    "get cm a -o jsonpath={.metadata.managedFields[*].manager} --show-managed-fields"
)
CONTAINERS = kubectl("get deployment d -o jsonpath={.spec.template.spec.containers}")

CASES = (
    case(
        "client side: create, same, change",
        kubectl("apply -f -", ONE),
        kubectl("apply -f -", ONE),
        kubectl("apply -f -", TWO),
        DATA,
    ),
    case(
        "client side: what it remembers",
        kubectl("apply -f -", ONE),
        kubectl("apply view-last-applied cm a"),
    ),
    case(
        "client side: over what was created",
        kubectl("create configmap a --from-literal=z=z"),
        kubectl("apply -f -", ONE),
        DATA,
    ),
    case(
        "client side: others' fields stay",
        kubectl("apply -f -", ONE),
        kubectl("""patch cm a --type=merge -p '{"data":{"mine":"yes"}}'""", show="code"),
        kubectl("apply -f -", TWO),
        DATA,
    ),
    case(
        "client side: a deployment",
        kubectl("apply -f -", DEPLOYMENT),
        kubectl("apply -f -", CHANGED),
        CONTAINERS,
    ),
    case(
        "client side: a list",
        kubectl("apply -f -", LIST),
        kubectl("get cm,secret -l set=one -o name"),
    ),
    case(
        "client side: pruned",
        kubectl("apply -f -", LIST),
        kubectl(
            "apply -f - -l set=one --prune --prune-allowlist=core/v1/ConfigMap --prune-allowlist=core/v1/Secret",
            LESS,
            sort=True,
        ),
        kubectl("get secret s"),
    ),
    case("client side: a typo is refused", kubectl("apply -f -", BAD)),
    case("client side: a typo is warned of", kubectl("apply --validate=warn -f -", BAD), DATA),
    case("client side: a typo is let through", kubectl("apply --validate=false -f -", BAD)),
    case(
        "client side: dry run of the server",
        kubectl("apply -f -", ONE),
        kubectl("apply --dry-run=server -f -", TWO),
        DATA,
    ),
    case("client side: output as YAML", kubectl("apply -f - -o jsonpath={.data}", ONE)),
    case("client side: of nothing", kubectl("apply -f -", "")),
    case(
        "client side: of a kind nobody knows",
        kubectl("apply -f -", "apiVersion: nope.example/v1\nkind: Nope\nmetadata: {name: a}\n"),
    ),
    case("client side: into a namespace that is not there", kubectl("apply -n no-$u -f -", ONE)),
    case(
        "server side: create, same, change",
        kubectl("apply --server-side -f -", ONE),
        kubectl("apply --server-side -f -", ONE),
        kubectl("apply --server-side -f -", TWO),
        DATA,
        MANAGERS,
    ),
    case(
        "server side: a conflict",
        kubectl("apply --server-side -f -", ONE),
        kubectl("apply --server-side --field-manager=other -f -", TWO),
    ),
    case(
        "server side: by force",
        kubectl("apply --server-side -f -", ONE),
        kubectl("apply --server-side --field-manager=other --force-conflicts -f -", TWO),
        DATA,
        MANAGERS,
    ),
    case(
        "server side: after the client's way",
        kubectl("apply -f -", ONE),
        kubectl("apply --server-side -f -", TWO),
        DATA,
        MANAGERS,
    ),
    case(
        "server side: a deployment",
        kubectl("apply --server-side -f -", DEPLOYMENT),
        kubectl("apply --server-side -f -", CHANGED),
        CONTAINERS,
    ),
    case(
        "server side: dry run",
        kubectl("apply --server-side --dry-run=server -f -", ONE),
        kubectl("get cm a"),
    ),
    case("server side: a typo", kubectl("apply --server-side -f -", BAD)),
    case("diff: nothing there", kubectl("diff -f -", ONE, show="code")),
    case("diff: no difference", kubectl("apply -f -", ONE), kubectl("diff -f -", ONE)),
    case("diff: a difference", kubectl("apply -f -", ONE), kubectl("diff -f -", TWO, show="code")),
    case(
        "diff: server side",
        kubectl("apply --server-side -f -", ONE),
        kubectl("diff --server-side -f -", TWO, show="code"),
    ),
    case(
        "scale",
        kubectl("apply -f -", DEPLOYMENT),
        kubectl("scale deployment d --replicas=0"),
        kubectl("scale deployment d --replicas=0 --current-replicas=5"),
        kubectl("get deployment d -o jsonpath={.spec.replicas}"),
    ),
    case("scale what is not there", kubectl("scale deployment none --replicas=1")),
    case(
        "rollout restart",
        kubectl("apply -f -", DEPLOYMENT),
        kubectl("rollout restart deployment d"),
        kubectl("rollout pause deployment d"),
        kubectl("rollout resume deployment d"),
    ),
    case(
        "delete from a file",
        kubectl("apply -f -", LIST),
        kubectl("delete -f -", LIST),
        kubectl("get cm a"),
    ),
    case(
        "apply of a namespace and what is in it",
        kubectl(
            "apply -f -",
            "apiVersion: v1\nkind: Namespace\nmetadata: {name: o-$u}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: o-$u}\n",
        ),
        kubectl("get cm a -n o-$u -o name"),
        kubectl("delete ns o-$u --wait=false"),
    ),
)
