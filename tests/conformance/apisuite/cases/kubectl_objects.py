"""kubectl on single objects: create, get, describe, label, annotate, delete, wait."""

from apisuite.case import case, kubectl

CM = "create configmap a --from-literal=k=v --from-literal=l=w"
SECRET = "create secret generic s --from-literal=p=q"
JSONPATH = "-o jsonpath={.data.k}"
POD = """
apiVersion: v1
kind: Pod
metadata: {name: p, labels: {app: x}}
spec:
  automountServiceAccountToken: false
  containers: [{name: main, image: registry.example/x:1, ports: [{containerPort: 80, name: http}]}]
"""
HELD = """
apiVersion: v1
kind: ConfigMap
metadata: {name: held, finalizers: [example.com/hold]}
"""

CASES = (
    case("create and get", kubectl(CM), kubectl("get configmap a"), kubectl("get cm")),
    case(
        "get wide, names, labels",
        kubectl(CM),
        kubectl("get cm a -o wide"),
        kubectl("get cm a -o name"),
        kubectl("get cm a --show-labels"),
        kubectl("get cm a --no-headers"),
    ),
    case("get as JSON", kubectl(CM), kubectl("get cm a -o json")),
    case("get as YAML", kubectl(CM), kubectl("get cm a -o yaml")),
    case(
        "get by path",
        kubectl(CM),
        kubectl(f"get cm a {JSONPATH}"),
        kubectl("get cm a -o go-template={{.data.l}}"),
    ),
    case(
        "get columns of one's own",
        kubectl(CM),
        kubectl("get cm a -o custom-columns=N:.metadata.name,K:.data.k"),
    ),
    case("get with managed fields", kubectl(CM), kubectl("get cm a -o json --show-managed-fields")),
    case(
        "get what is not there", kubectl("get cm none"), kubectl("get cm none --ignore-not-found")
    ),
    case("get of nothing", kubectl("get secrets"), kubectl("get pods")),
    case("get a kind nobody knows", kubectl("get nothings")),
    case("get several kinds", kubectl(CM), kubectl(SECRET), kubectl("get cm/a secret/s -o name")),
    case(
        "get by selector",
        kubectl(CM),
        kubectl("label cm a tier=front"),
        kubectl("get cm -l tier=front"),
        kubectl("get cm -l tier!=front,tier"),
    ),
    case("get by field", kubectl(CM), kubectl("get cm --field-selector metadata.name=a")),
    case(
        "get sorted",
        kubectl(CM),
        kubectl("create configmap b"),
        kubectl("get cm a b --sort-by=.metadata.name -o name"),
    ),
    case("get raw", kubectl(CM), kubectl("get --raw /api/v1/namespaces/$ns/configmaps/a")),
    case(
        "get in chunks",
        *(kubectl(f"create configmap c{i}", show="code") for i in range(4)),
        kubectl("get cm -o name --chunk-size=2 --field-selector metadata.name!=kube-root-ca.crt"),
    ),
    case("create twice", kubectl(CM), kubectl(CM)),
    case(
        "create from a file",
        kubectl("create -f -", POD),
        kubectl("get pod p -o jsonpath={.spec.containers[0].image}"),
    ),
    case(
        "create as a dry run of the server", kubectl(f"{CM} --dry-run=server"), kubectl("get cm a")
    ),
    case("create as a dry run of the client", kubectl(f"{CM} --dry-run=client -o yaml")),
    case(
        "create a namespace",
        kubectl("create namespace o-$u"),
        kubectl("get ns o-$u"),
        kubectl("delete ns o-$u --wait=false"),
    ),
    case(
        "create a secret of TLS that is not there",
        kubectl("create secret tls t --cert=/none --key=/none"),
    ),
    case(
        "create a docker secret",
        kubectl(
            "create secret docker-registry r --docker-server=x.example --docker-username=u --docker-password=p"
        ),
        kubectl("get secret r -o jsonpath={.type}"),
    ),
    case("create a service account", kubectl("create serviceaccount bot"), kubectl("get sa bot")),
    case(
        "create a role and its binding",
        kubectl("create role r --verb=get,list --resource=configmaps"),
        kubectl("create rolebinding b --role=r --serviceaccount=$ns:bot"),
        kubectl("get role r -o jsonpath={.rules}"),
        kubectl("get rolebinding b"),
        kubectl("describe role r"),
    ),
    case(
        "create a service",
        kubectl("create service clusterip s --tcp=80:8080 --clusterip=None"),
        kubectl("get svc s"),
        kubectl("get svc s -o jsonpath={.spec.ports}"),
    ),
    case(
        "create a deployment",
        kubectl("create deployment d --image=registry.example/x:1 --replicas=0"),
        kubectl("get deployment d -o jsonpath={.spec.template.spec.containers[0].name}"),
    ),
    case(
        "create a quota of pods by priority",
        kubectl("create priorityclass p-$u --value=7"),
        kubectl("get priorityclass p-$u"),
        kubectl("delete priorityclass p-$u"),
    ),
    case(
        "create a budget",
        kubectl("create poddisruptionbudget b --selector=app=x --min-available=1"),
        kubectl("get pdb b -o jsonpath={.spec}"),
    ),
    case(
        "a token",
        kubectl("create serviceaccount bot"),
        kubectl("create token bot --duration=10m", show="code"),
    ),
    case("describe a configmap", kubectl(CM), kubectl("describe cm a")),
    case("describe a secret", kubectl(SECRET), kubectl("describe secret s")),
    case("describe a pod", kubectl("create -f -", POD), kubectl("describe pod p")),
    case(
        "describe a namespace",
        kubectl("create namespace o-$u"),
        kubectl("describe ns o-$u"),
        kubectl("delete ns o-$u --wait=false"),
    ),
    case("describe what is not there", kubectl("describe cm none")),
    case(
        "label",
        kubectl(CM),
        kubectl("label cm a x=1"),
        kubectl("label cm a x=2"),
        kubectl("label cm a x=2 --overwrite"),
        kubectl("label cm a x-"),
        kubectl("get cm a --show-labels"),
    ),
    case(
        "label many",
        kubectl(CM),
        kubectl("create configmap b"),
        kubectl("label cm a b g=1"),
        kubectl("get cm -l g=1 -o name"),
    ),
    case("a label that is bad", kubectl(CM), kubectl("label cm a x=@@@")),
    case(
        "annotate",
        kubectl(CM),
        kubectl("annotate cm a note=hello"),
        kubectl("annotate cm a note-"),
        kubectl("get cm a -o jsonpath={.metadata.annotations}"),
    ),
    case(
        "patch: merge",
        kubectl(CM),
        kubectl("""patch cm a --type=merge -p '{"data":{"k":"n"}}'"""),
        kubectl(f"get cm a {JSONPATH}"),
    ),
    case(
        "patch: JSON",
        kubectl(CM),
        kubectl("""patch cm a --type=json -p '[{"op":"remove","path":"/data/k"}]'"""),
        kubectl("get cm a -o jsonpath={.data}"),
    ),
    case(
        "patch: strategic",
        kubectl(CM),
        kubectl("""patch cm a -p '{"data":{"m":"n"}}'"""),
        kubectl("""patch cm a -p '{"data":{"m":"n"}}'"""),
        kubectl("get cm a -o jsonpath={.data}"),
    ),
    case(
        "patch: that is refused",
        kubectl(CM),
        kubectl("""patch cm a --type=json -p '[{"op":"remove","path":"/data/zz"}]'"""),
    ),
    case(
        "patch: of a subresource",
        kubectl("create -f -", POD),
        kubectl(
            """patch pod p --subresource=status --type=merge -p '{"status":{"phase":"Running"}}'"""
        ),
        kubectl("get pod p -o jsonpath={.status.phase}"),
    ),
    case(
        "replace",
        kubectl(CM),
        kubectl(
            "replace -f -", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: z}\n"
        ),
        kubectl("get cm a -o jsonpath={.data}"),
    ),
    case(
        "replace by force",
        kubectl(CM),
        kubectl(
            "replace --force -f -",
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: z}\n",
        ),
        kubectl("get cm a -o jsonpath={.data}"),
    ),
    case(
        "set data",
        kubectl("create deployment d --image=registry.example/x:1 --replicas=0"),
        kubectl("set image deployment/d x=registry.example/x:2"),
        kubectl("set env deployment/d A=b"),
        kubectl(
            "get deployment d -o jsonpath={.spec.template.spec.containers[0].image}{.spec.template.spec.containers[0].env}"
        ),
    ),
    case(
        "edit with an editor that changes nothing",
        kubectl(CM),
        kubectl("edit cm a"),
    ),
    case(
        "delete",
        kubectl(CM),
        kubectl("delete cm a"),
        kubectl("delete cm a"),
        kubectl("delete cm a --ignore-not-found"),
    ),
    case(
        "delete by selector",
        kubectl(CM),
        kubectl("create configmap b"),
        kubectl("label cm a b g=1"),
        kubectl("delete cm -l g=1"),
        kubectl("get cm a b"),
    ),
    case(
        "delete and wait for a finalizer",
        kubectl("create -f -", HELD),
        kubectl("delete cm held --timeout=1s"),
        kubectl("""patch cm held --type=merge -p '{"metadata":{"finalizers":null}}'"""),
        kubectl("get cm held"),
    ),
    case(
        "delete as a dry run",
        kubectl(CM),
        kubectl("delete cm a --dry-run=server"),
        kubectl("get cm a"),
    ),
    case(
        "delete a pod now",
        kubectl("create -f -", POD),
        kubectl("delete pod p --grace-period=0 --force"),
        kubectl("get pod p"),
    ),
    case(
        "delete leaving dependants",
        kubectl("create deployment d --image=registry.example/x:1 --replicas=0"),
        kubectl("delete deployment d --cascade=orphan"),
        kubectl("get deployment d"),
    ),
    case(
        "wait for a condition of a path",
        kubectl("create -f -", POD),
        kubectl("wait pod/p --for=jsonpath={.status.phase}=Pending --timeout=5s"),
    ),
    case(
        "wait for a deletion",
        kubectl(CM),
        kubectl("delete cm a --wait=false"),
        kubectl("wait cm/a --for=delete --timeout=5s"),
    ),
    case(
        "wait in vain",
        kubectl("create -f -", POD),
        kubectl("wait pod/p --for=condition=Ready --timeout=1s"),
    ),
    case("wait for a creation", kubectl(CM), kubectl("wait cm/a --for=create --timeout=5s")),
    case(
        "events",
        kubectl(
            "create -f -",
            "apiVersion: v1\nkind: Event\nmetadata: {name: e}\ninvolvedObject: {kind: Pod, name: p, namespace: $ns}\nreason: Tested\nmessage: hello\ntype: Normal\nlastTimestamp: 2020-01-01T00:00:00Z\n",
        ),
        kubectl("get events -o custom-columns=R:.reason,M:.message"),
        kubectl("events --for pod/p --no-headers -o jsonpath={.items[*].reason}"),
    ),
    case(
        "expose",
        kubectl("create -f -", POD),
        kubectl("expose pod p --port=80 --cluster-ip=None"),
        kubectl("get svc p -o jsonpath={.spec.selector}"),
    ),
)
