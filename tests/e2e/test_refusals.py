"""What cannot work is refused at once, and quotas hold, with the installed command and a lab."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("e2e")
Run = Callable[..., subprocess.CompletedProcess[str]]
COMMAND = str(Path(sys.executable).with_name("moxwell"))
RED = """
apiVersion: apps.cozystack.io/v1alpha1
kind: Kubernetes
metadata: {name: blog, namespace: tenant-red}
spec:
  nodeGroups:
    - {name: worker, replicas: 2, instanceType: u1.medium}
---
apiVersion: apps.cozystack.io/v1alpha1
kind: Tenant
metadata: {name: red, namespace: default}
spec: {resourceQuotas: {cpu: 4}, network: {allowFrom: [10.0.0.0/8]}}
"""


@pytest.fixture(scope="module")
def moxwell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    home = tmp_path_factory.mktemp("refusals")
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "XDG_STATE_HOME": str(home / "s")}

    def run(*args: str, text: str = "", editor: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [COMMAND, *args, "--name", "refusals"],
            env=env | {"EDITOR": editor},
            input=text,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )

    started = run("up", "--no-demo")
    assert started.returncode == 0, started.stderr
    assert run("apply", "-f", "-", text=RED).returncode == 0  # the tenant and its cluster at once
    bad = RED.replace("u1.medium", "u1.medium, bridge: vmbr9")
    known = any("vmbr9" in run("plan", "-f", "-", text=bad).stderr for _ in range(60))
    assert known, "the bridges of the hosts were not read"
    yield run
    run("down", "--purge")


def refused(done: subprocess.CompletedProcess[str], said: str) -> None:
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert said in done.stderr


@pytest.mark.parametrize("command", ["apply", "plan"])
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        pytest.param("instanceType", "instanceTyp", "did you mean instanceType?", id="field"),
        pytest.param("resourceQuotas", "resourceQuota", "did you mean resourceQuotas?", id="quota"),
        pytest.param("u1.medium", "u1.meduim", "did you mean u1.medium?", id="size"),
        pytest.param("u1.medium", "u1.medium, storage: local-lvn", "mean local-lvm?", id="storage"),
        pytest.param("u1.medium", "u1.medium, bridge: vmbr9", "mean vmbr0?", id="bridge"),
        pytest.param("u1.medium", "u1.medium, regions: [amsterdm]", "mean amsterdam?", id="region"),
        pytest.param("nodeGroups:", "version: v1.31.0\n  nodeGroups:", "v1.31.0", id="version"),
        pytest.param("blog", "b" * 60, "too long", id="name"),
        pytest.param("kind: Kubernetes", "kind: Kubernets", "did you mean Kubernetes?", id="kind"),
        pytest.param("/v1alpha1", "/v1", "apps.cozystack.io/v1alpha1 is", id="version of a kind"),
        pytest.param("spec:", "spec: {}\nspec:", "a key is there twice", id="a key twice"),
        pytest.param(
            "replicas: 2", "replicas: 3", "6 asked, 0 used by others, limit 4", id="too many nodes"
        ),
        pytest.param(
            "u1.medium", "u1.large", "12 asked, 0 used by others, limit 4", id="too large nodes"
        ),
    ],
)
def test_a_mistake_is_refused(moxwell: Run, command: str, old: str, new: str, said: str) -> None:
    bad = RED.replace(old, new, 1)
    assert bad != RED
    refused(moxwell(command, "-f", "-", text=bad), said)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("cluster", "create", "a", "--regions", "amsterdm", "--no-wait"), "mean amsterdam?"),
        (("cluster", "create", "a", "--version", "v1.31.0", "--no-wait"), "mean v1.33.4?"),
        (("cluster", "create", "b" * 60, "--no-wait"), "too long"),
        (("cluster", "describe", "blgo", "-n", "tenant-red"), "mean blog?"),
        (("cluster", "scale", "blog", "wroker", "3", "-n", "tenant-red"), "mean worker?"),
        (
            ("volume", "list", "--cluster", "blgo"),
            "mean blog?); existing clusters: t",
        ),
        (("cluster", "scale", "blog", "worker", "3", "-n", "tenant-red"), "6 asked, 0 used"),
        (("cluster", "scale", "blog", "worker", "3", "-n", "tenant-red", "--plan"), "6 asked"),
    ],
)
def test_a_command_is_refused(moxwell: Run, args: tuple[str, ...], said: str) -> None:
    refused(moxwell(*args), said)


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ("s/nodeGroups/nodeGroup/", "did you mean nodeGroups?"),
        ("s/^spec:/specs:/", "did you mean spec?"),
        ("s/u1.medium/u1.meduim/", "did you mean u1.medium?"),
        ("s/^spec:/{{{/", "is not YAML"),
    ],
)
def test_an_edit_is_refused_and_the_text_is_kept(moxwell: Run, edit: str, said: str) -> None:
    before = _written_by_users(moxwell)
    done = moxwell("cluster", "edit", "blog", "-n", "tenant-red", editor=f"sed -i {edit}")
    refused(done, said)
    kept = Path(done.stderr.partition(" kept in ")[2].split()[0])
    assert "blog" in kept.read_text()
    kept.unlink()
    assert _written_by_users(moxwell) == before


def _written_by_users(moxwell: Run) -> list[str]:
    """The lines of the cluster without status and resource version, which controllers change."""
    text = moxwell("get", "kubernetes", "blog", "-n", "tenant-red", "-o", "yaml").stdout
    lines = text.partition("status:")[0].splitlines()
    assert "spec:" in lines
    return [line for line in lines if "resourceVersion:" not in line]


def test_an_upgrade_that_cannot_work_does_not_start(moxwell: Run) -> None:
    for version, said in (
        ("v1.31.0", "no downgrade"),
        ("v1.36.0", "skips minor versions"),
        ("v1.35.7", "mean v1.35.0?"),
    ):
        refused(moxwell("cluster", "upgrade", "blog", version, "-n", "tenant-red"), said)


def test_a_field_that_a_kind_of_kubernetes_does_not_have_is_wrong_input(moxwell: Run) -> None:
    bad = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: tenant-red}\ndta: {}\n"
    for command in ("apply", "plan"):
        refused(moxwell(command, "-f", "-", text=bad), ".dta: field not declared in schema")


def test_a_list_of_clusters_can_be_that_of_a_namespace(moxwell: Run) -> None:
    assert "blog" in moxwell("cluster", "list", "-n", "tenant-red").stdout
    assert "blog" not in moxwell("cluster", "list", "-n", "tenant-demo").stdout


def test_a_namespace_that_did_not_exist_is_named(moxwell: Run) -> None:
    words = ("cluster", "create", "a", "--nodes", "0", "-n", "tenant-nwe", "--no-wait")
    assert "namespace tenant-nwe is created" in moxwell(*words).stderr


def test_a_raised_quota_and_what_needs_it_apply_at_once(moxwell: Run) -> None:
    more = RED.replace("cpu: 4", "cpu: 6").replace("replicas: 2", "replicas: 3")
    done = moxwell("apply", "-f", "-", text=more)
    assert done.returncode == 0, done.stderr
    assert moxwell("apply", "-f", "-", text=RED).returncode == 0


def test_the_plan_of_a_deletion_names_guests_disks_and_groups(moxwell: Run) -> None:
    done = moxwell("delete", "tenant", "red", "--plan")
    assert done.returncode == 0, done.stderr
    for words in ("Namespace tenant-red", "SecurityGroup amsterdam/mox-red", "Kubernetes blog"):
        assert words in done.stdout
    assert moxwell("get", "tenants").stdout.count("red") >= 1  # nothing was deleted
