"""Templates print what karpenter-provider-proxmox, a Go program, prints for them."""

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moxwell.bootstrap.go_templates.errors import TemplateFailed
from moxwell.bootstrap.go_templates.render import render
from moxwell.bootstrap.go_templates.values import SizedInt, StringMap, Strings
from moxwell.bootstrap.node_context import (
    KubeletSettings,
    KubeletTaint,
    NodeContext,
    NodeInterface,
    NodeKubernetes,
    NodeMetadata,
    NodeNetwork,
    NodeResources,
)

RECORDED = json.loads((Path(__file__).parent / "go_templates" / "cases.json").read_text())
DIFFERENT = {"{{1i}}": "complex numbers are not supported"}
LINE = re.compile(r"cloudinit:(\d+)")


def uint32(value: int) -> SizedInt:
    return SizedInt(value, "uint32")


NODE = NodeContext(
    metadata=NodeMetadata(
        hostname="node-1",
        instance_id="1001",
        instance_uuid="0f1e",
        instance_type="s1.2VCPU-8GB",
        provider_id="proxmox://r1/1001",
        region="r1",
        zone="pve1",
        tags=Strings(("karpenter", "team=a;tier=web")),
        node_class="default",
    ),
    network=NodeNetwork(
        interfaces=(
            NodeInterface(
                name="eth0",
                mac="BC:24:11:00:00:01",
                address4=Strings(("10.0.0.5/24",)),
                gateway4="10.0.0.1",
                mtu=uint32(1500),
                node_address6="2001:db8:1::10/64",
                slaac=True,
            ),
            NodeInterface(name="eth1", mac="BC:24:11:00:00:02", dhcp4=True, dhcp6=True),
            NodeInterface(
                name="eth2",
                mac="BC:24:11:00:00:03",
                address6=Strings(("fd00::5/64",)),
                gateway6="fd00::1",
                mtu=uint32(9000),
            ),
        ),
        search_domains=Strings(("example.org",)),
        name_servers=Strings(("1.1.1.1", "2606:4700::1111")),
    ),
    resources=NodeResources(
        cpu=SizedInt(2, "int64"), memory=SizedInt(8 * 2**30, "int64"), hugepages_2mi=512
    ),
    kubernetes=NodeKubernetes(
        version="v1.36.3",
        root_ca="-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
        bootstrap_token="abcdef.0123456789abcdef",
        kubelet_configuration=KubeletSettings(
            cpu_manager_policy="static",
            cluster_dns=Strings(("10.96.0.10",)),
            max_pods=SizedInt(110, "int32"),
            provider_id="proxmox://r1/1001",
            fail_swap_on=False,
            kube_reserved=StringMap(memory="384Mi", cpu="50m"),
            register_with_taints=(
                KubeletTaint(key="karpenter.sh/unregistered", effect="NoExecute"),
            ),
        ),
    ),
    values=StringMap(
        {
            "SSHAuthorizedKeys": "ssh-ed25519 AAAA a,ssh-rsa BBBB b",
            "empty": "",
            "number": "42",
            "yes": "yes",
            "text": "two\nlines",
        }
    ),
)
ROOTS = {"user": NODE, "metadata": NODE.metadata, "network": NODE.network}


def data(case: dict[str, Any]) -> Any:
    return ROOTS[case["root"]] if "root" in case else RECORDED["data"]


@pytest.mark.parametrize("case", RECORDED["cases"], ids=lambda case: case["template"][:60])
def test_a_template_prints_what_go_prints(case: dict[str, Any]) -> None:
    if why := DIFFERENT.get(case["template"]):
        with pytest.raises(TemplateFailed, match=why):
            render(case["template"], data(case))
    elif "output" in case:
        assert render(case["template"], data(case)) == case["output"]
    else:
        with pytest.raises(TemplateFailed) as failed:
            render(case["template"], data(case))
        assert failed.value.column > 0
        if "unexpected EOF" not in case["error"] and (line := LINE.search(case["error"])):
            assert failed.value.line == int(line[1])


PIECES = st.sampled_from(
    ["{{", "}}", "{{-", " -}}", ".a", "$x", ":=", "=", "|", "(", ")", " ", "range", "if", "else",
     "end", "with", "define", "template", '"t"', "printf", "%d", "9", "-1", "'", '"', "`", ".s",
     "index", "toYaml", "nindent", "1000000000", "break", "/*", "*/", "\n", "x"]
)  # fmt: skip


@given(st.lists(PIECES, max_size=40).map("".join) | st.text(max_size=60))
def test_any_text_is_rendered_or_refused(source: str) -> None:
    with contextlib.suppress(TemplateFailed):  # whatever else is raised fails the test
        assert isinstance(render(source, RECORDED["data"]), str)


HOSTILE = [
    "{{range 1000000000}}x{{end}}",
    "{{define `r`}}{{template `r` .}}{{end}}{{template `r` .}}",
    "{{" + "(" * 5000 + "1" + ")" * 5000 + "}}",
    "{{if 1}}" * 5000 + "{{end}}" * 5000,
    '{{printf "%1000000000d" 1}}',
    "{{nindent 1000000000 `x`}}",
    "{{$x := `aaaaaaaaaa`}}" + "{{$x = print $x $x $x $x $x $x $x $x}}" * 30 + "{{$x}}",
    '{{regexReplaceAll "" (printf "%9999d" 1) (printf "%9999d" 1)}}',
]


@pytest.mark.parametrize("source", HOSTILE, ids=lambda source: source[:30])
def test_a_template_cannot_take_more_than_its_share(source: str) -> None:
    with pytest.raises(TemplateFailed):
        render(source, {})


def test_an_error_names_line_and_column() -> None:
    with pytest.raises(TemplateFailed, match=r"^line 2, column 4: function 'nope' not defined$"):
        render("a\n {{nope}}", {})
