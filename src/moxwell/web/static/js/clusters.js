// The list of clusters and the page of one cluster: rollout, and spread over hosts.
import { h } from "./dom.js";
import { all, ask, get } from "./live.js";
import { gib, plural, since } from "./format.js";
import { glyph, icon, isReady, square } from "./icons.js";
import { machineTable } from "./machines.js";
import { commands } from "./commands.js";
import { card, page, table } from "./table.js";
import { view } from "./view.js";

const byName = (a, b) => a.name.localeCompare(b.name, undefined, { numeric: true });

// How many nodes are ready, and of how many nothing is known.
const nodes = (c) => `${c.ready} of ${c.total} ready${c.unknown ? `, ${c.unknown} unknown` : ""}`;
const HEADS = [["", "icon"], ["Cluster", "name"], ["Namespace", "faint"], ["Version"], ["Nodes"], ["Spans"], ["State", "wide dim"], ["For", "num"]];

export function clusters() {
  const rows = all("cluster").sort(byName);
  const cells = (c) => [glyph(c.state), h("a", { href: `/cluster/${c.key.slice(8)}` }, square(c), " ", h("b", {}, c.name)), c.namespace, c.version, nodes(c), c.regions.join(", "), c.sentence, since(c.since)];
  const none = h("p", { class: "dim" }, "No clusters yet. ", h("a", { href: "/" }, "How to create one"));
  return page("Clusters", plural(rows.length, "cluster"), h("section", { class: "card" }, rows.length ? table(HEADS, rows.map((c) => ({ key: c.key, href: `/cluster/${c.key.slice(8)}`, cells: cells(c) }))) : none));
}

export function cluster(key) {
  const c = get(`cluster/${key}`);
  if (!c) return page("There is no such cluster", null, h("p", { class: "dim" }, "It may have been deleted. ", h("a", { href: "/clusters" }, "All clusters")));
  const machines = all("machine").filter((m) => m.cluster === key);
  return h("div", { class: "scroll main" }, h("div", { class: "page" },
    h("div", { class: "crumbs" }, h("a", { href: "/clusters" }, "Clusters"), h("span", {}, "/"), h("span", {}, c.namespace), h("span", {}, "/")),
    h("div", { class: "title" }, square(c), h("h1", {}, c.name), !isReady(c.state) && h("span", { class: `pill ${{ creating: "moving", deleting: "moving" }[c.state] || c.state}` }, icon(c.state), c.headline || c.sentence),
      c.lost.length > 0 && h("span", { class: "pill trouble" }, icon("trouble"), `${c.lost.join(", ")} ${c.lost.length > 1 ? "do" : "does"} not answer`),
      h("span", { class: "right" }, h("button", { class: "btn", onclick: () => commands(c.name, kubeconfigs(c)) }, "Kubeconfig"), h("button", { class: "btn", onclick: () => planned(c) }, "Plan a change"))),
    facts(c, key), h("div", { class: "two" }, rollout(c, machines), spread(c, machines)), machineTable(machines)));
}
function facts(c, key) {
  const cell = (label, value, sub, ok) => h("div", { key: label }, h("span", { class: "sub" }, label), h("b", {}, value), h("span", { class: "sub" }, ok && icon("check", "s"), sub));
  return h("div", { class: "card facts" },
    cell("Endpoint", h("span", { class: "mono" }, c.endpoint || "not yet"), c.endpoint_says, c.endpoint_ok),
    cell("Control plane", c.control_plane, c.control_plane_says), cell("Nodes", nodes(c), c.nodes_say),
    cell("Spans", c.regions.join(", ") || "nowhere yet", c.spans_say), cell("Addresses", c.addresses || "none", c.addresses_say), cell("Volumes", c.volumes || "none", c.volumes_say));
}
const mark = (m, c) => h("a", { href: `/machine/${m.key.slice(8)}`, "aria-label": `${m.name}: ${m.sentence || "Done"}`, key: m.key, class: `mark h${c.hue} ${m.mark}`, title: `${m.name}: ${m.sentence || "Done"}`, style: { "--edge": `var(--c${c.hue})` } });
// Waiting and failed machines are rare, so their symbols are explained where there are some.
const legend = (machines) => [["new", "new"], ["creating", "creating"], ["old", "old"], ["deleting", "deleting"], ["unknown", "unknown"], ...[["waiting", "waiting"], ["trouble", "failed"]].filter(([m]) => machines.some((x) => x.mark === m))];
function rollout(c, machines) {
  const order = ["new", "creating", "old", "deleting", "waiting", "trouble", "unknown"];
  const rows = c.groups.map((g) => {
    const own = machines.filter((m) => m.group === g.name).sort((a, b) => order.indexOf(a.mark) - order.indexOf(b.mark) || a.name.localeCompare(b.name));
    return { key: g.name, cells: [h("span", {}, h("b", {}, g.name), h("div", { class: "sub" }, g.cpus ? `${g.cpus} vCPU, ${gib(g.memory_mib)} GiB` : "no machine yet")), `${g.ready} of ${g.total}${g.unknown ? `, ${g.unknown} unknown` : ""}`, h("span", { class: "marks" }, own.map((m) => mark(m, c))), `${g.updated} of ${g.want}`, g.then] };
  });
  return h("div", { class: "card" }, h("header", {}, h("h2", {}, "Rollout"), h("span", { class: "sub" }, "one symbol per machine"), c.rollout_since && h("span", { class: "sub right" }, `began ${since(c.rollout_since)} ago`)),
    rows.length ? table([["Group", "name"], ["Ready"], ["Machines", "wide"], ["New"], ["Then", "dim"]], rows) : h("p", { class: "dim" }, "It has no node groups."),
    c.holds && h("div", { class: "note" }, icon("waiting"), h("span", {}, c.holds)),
    h("div", { class: "legend" }, legend(machines).map(([m, word]) => h("span", { key: m }, h("i", { class: `mark ${m}`, style: { "--edge": `var(--c${c.hue})` } }), word))));
}
function spread(c, machines) {
  const placed = machines.filter((m) => m.host);
  const hosts = all("host").filter((x) => c.regions.includes(x.region)).sort((a, b) => a.region.localeCompare(b.region) || byName(a, b));
  const at = (m, x) => m.region === x.region && m.host === x.name;
  const lost = (x) => (placed.length ? `${Math.round((100 * placed.filter((m) => at(m, x)).length) / placed.length)} %` : "");
  const regions = [...new Set(hosts.map((x) => x.region))];
  const edge = (x) => (hosts.find((y) => y.region === x.region) === x ? "edge" : "");
  const away = (x) => (x.state === "trouble" ? "away" : "");
  if (!placed.length) return card("Spread", "machines per host", h("p", { class: "dim" }, "No machine has a host yet."));
  if (view.phone) return spreadList(c, hosts, placed);
  return h("div", { class: "card spread" }, h("header", {}, h("h2", {}, "Spread"), h("span", { class: "sub" }, "machines per host")),
    h("div", { class: "across" }, h("table", {}, h("thead", {}, h("tr", { key: "r" }, h("th", {}), regions.map((r) => h("th", { key: r, class: "edge", colspan: hosts.filter((x) => x.region === r).length }, r))),
      h("tr", { key: "h" }, h("th", {}), hosts.map((x) => h("th", { key: x.key, class: `${away(x)} ${edge(x)}` }, x.name)))),
      h("tbody", {}, c.groups.map((g) => h("tr", { key: g.name }, h("td", {}, h("b", {}, g.name)), hosts.map((x) => { const own = placed.filter((m) => m.group === g.name && at(m, x)); return h("td", { key: x.key, class: `${away(x)} ${edge(x)}` }, own.length ? h("span", { class: "marks" }, own.map((m) => mark(m, c))) : h("span", { class: "none" }, "·")); }))),
        h("tr", { key: "lost" }, h("td", { class: "sub" }, "Share"), hosts.map((x) => h("td", { key: x.key, class: `${away(x)} ${edge(x)}` }, lost(x))))))),
    h("p", { class: "sub" }, c.verdict || ""));
}
// On a phone a row per host that runs a machine of the cluster.
function spreadList(c, hosts, placed) {
  const rows = hosts.map((x) => [x, placed.filter((m) => m.region === x.region && m.host === x.name)]).filter(([, own]) => own.length);
  return card("Spread", "machines per host", table([["Host", "name"], ["Machines"], ["Share", "num"]], rows.map(([x, own]) => ({ key: x.key, class: x.state === "trouble" ? "away" : "", cells: [`${x.region}/${x.name}`, h("span", { class: "marks" }, own.map((m) => mark(m, c))), `${Math.round((100 * own.length) / placed.length)} %`] }))), h("p", { class: "sub" }, c.verdict || ""));
}

const at = (c) => `${c.name} --namespace ${c.namespace}`;
const kubeconfigs = (c) => [["Write it to a file that only you can read", `moxwell cluster kubeconfig ${at(c)} --file ${c.name}.kubeconfig`], ["Then", `kubectl --kubeconfig ${c.name}.kubeconfig get nodes`]];
const numbers = (version) => version.replace("v", "").split(".").map(Number);
// The newest version of a template that can follow: at most one minor version later.
function following(version, offered) {
  const [major, minor, patch] = numbers(version || "v0.0.0");
  return offered.map((row) => row.version).find((name) => {
    const [x, y, z] = numbers(name);
    return x === major && (y === minor + 1 || (y === minor && z > patch));
  });
}
function upgrade(c, offered) {
  const version = following(c.control_plane_says, offered);
  return version ? ["Upgrade Kubernetes", `moxwell cluster upgrade ${c.name} ${version} --namespace ${c.namespace} --plan`] : ["Upgrade Kubernetes: no template has a version that can follow", "moxwell cluster versions"];
}
// Asked when the dialog opens; without an answer it has the other commands.
const planned = (c) => ask("versions").then((answer) => answer.rows, () => []).then((offered) => commands(c.name, changes(c, offered)));
const changes = (c, offered) => [
  ...c.groups.map((g) => [`Scale ${g.name}; without --plan it is applied`, `moxwell cluster scale ${c.name} ${g.name} ${g.want + 1} --namespace ${c.namespace} --plan`]),
  upgrade(c, offered),
  ["Any other change: edit the object and show the plan", `moxwell get kubernetes/${c.name} -n ${c.namespace} -o yaml > ${c.name}.yaml`],
  ["", `moxwell plan -f ${c.name}.yaml`],
  ["Show what deleting it would delete", `moxwell cluster delete ${at(c)} --plan`]];
