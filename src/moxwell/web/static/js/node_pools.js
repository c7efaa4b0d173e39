// Node pools: what the autoscaler keeps, why each node exists, why it stays, and what would be saved.
import { h } from "./dom.js";
import { all, get } from "./live.js";
import { plural, since } from "./format.js";
import { glyph, square } from "./icons.js";
import { card, page, table } from "./table.js";

const HEADS = [["", "icon"], ["Node", "name"], ["Type"], ["Zone"], ["Pods", "num"], ["Why it exists", "dim"], ["Why it stays", "wide dim"], ["For", "num"]];
const byName = (a, b) => a.name.localeCompare(b.name, undefined, { numeric: true });

export function nodePools() {
  const pools = all("pool").sort((a, b) => a.cluster.localeCompare(b.cluster) || byName(a, b));
  const nodes = all("poolnode");
  return page("Node pools", `${plural(pools.length, "node pool")}, ${plural(nodes.length, "node")}`,
    pools.length ? pools.map((p) => pool(p, nodes.filter((n) => n.cluster === p.cluster && n.pool === p.name).sort(byName)))
      : card("Node pools", "", h("p", { class: "dim" }, "No node pool yet. A NodePool in a cluster lets Moxwell add nodes for pods that no node has room for.")));
}
function pool(p, nodes) {
  const c = get(`cluster/${p.cluster}`);
  const use = [p.used && `uses ${p.used}`, p.limits && `at most ${p.limits}`].filter(Boolean).join(", ");
  const head = [c && square(c), " ", h("a", { href: `/cluster/${p.cluster}` }, c ? c.name : p.cluster), use && `, ${use}`];
  return h("div", { key: p.key }, card(p.name, head,
    p.state !== "ready" && h("p", {}, `Not ready: ${p.sentence || "it was not checked yet"}`),
    p.proposal && h("p", {}, `Would save ${p.saves.toFixed(3)} of its price: ${p.proposal}`),
    nodes.length ? table(HEADS, nodes.map(row)) : h("p", { class: "dim" }, "It has no node. It gets one when pods do not fit elsewhere.")));
}
function row(n) {
  const type = h("span", {}, n.type, n.capacity && h("span", { class: "sub" }, ` ${n.capacity}`));
  return { key: n.key, href: n.href, cells: [glyph(n.state), h("b", {}, n.href ? h("a", { href: n.href }, n.name) : n.name), n.type && type, n.zone, String(n.pods), n.why, n.state === "ready" ? h("span", { title: n.goes.join("\n") }, n.stays) : n.sentence, since(n.since)] };
}
