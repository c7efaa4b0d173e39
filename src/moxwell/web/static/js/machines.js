// The list of machines and the page of one machine.
import { h } from "./dom.js";
import { all, ask, get, now, paint } from "./live.js";
import { clock, gib, plural, since, span } from "./format.js";
import { glyph, icon, isReady, square } from "./icons.js";
import { view } from "./view.js";
import { commands } from "./commands.js";

const notReadyFirst = (a, b) => (isReady(a.state) ? 1 : 0) - (isReady(b.state) ? 1 : 0) || a.name.localeCompare(b.name, undefined, { numeric: true });

export function machines() {
  return h("div", { class: "scroll main" }, h("div", { class: "page" }, h("div", { class: "title" }, h("h1", {}, "Machines")), machineTable(all("machine"), true)));
}
export function machineTable(rows, withCluster) {
  const wanted = view.filter.toLowerCase();
  const shown = rows.filter((m) => !wanted || `${m.name} ${m.host} ${m.region} ${m.sentence} ${m.group}`.toLowerCase().includes(wanted)).sort(notReadyFirst);
  const heads = ["", "Machine", ...(withCluster ? ["Cluster"] : []), "Group", "Host", "VMID", "Address", "Version", "Current move", "For"];
  return h("div", { class: "card" }, h("header", {}, h("h2", {}, "Machines"), h("span", { class: "sub" }, `${shown.length}: not ready first`), h("span", { class: "right" }, h("input", { class: "find", placeholder: "Filter", id: "filter", value: view.filter, oninput: (e) => { view.filter = e.target.value; paint(true); } }))),
    h("table", { class: "rows" }, h("thead", {}, h("tr", {}, heads.map((t, i) => h("th", { key: i, class: t === "VMID" || t === "For" ? "num" : "" }, t)))),
      h("tbody", {}, shown.map((m) => {
        const c = get(`cluster/${m.cluster}`);
        return h("tr", { key: m.key, tabindex: 0, "data-href": `/machine/${m.key.slice(8)}` }, h("td", { class: "icon" }, glyph(m.state)), h("td", {}, h("a", { href: `/machine/${m.key.slice(8)}` }, h("b", {}, m.name))), withCluster && h("td", {}, c && [square(c), " ", c.name]),
          h("td", {}, m.group), h("td", {}, m.host ? [h("span", { class: "faint" }, `${m.region}/`), m.host] : h("span", { class: "faint" }, "not yet")), h("td", { class: "num" }, m.vmid || ""), h("td", {}, m.address || h("span", { class: "faint" }, "not yet")), h("td", {}, m.version),
          h("td", { class: `wide ${isReady(m.state) ? "dim" : ""}` }, m.sentence || "Done", m.progress !== null && m.progress !== undefined && h("span", { class: "prog" }, h("i", { style: { width: `${Math.round(m.progress * 100)}%` } }))), h("td", { class: "num" }, since(m.since)));
      }))));
}

export function machine(key) {
  const m = get(`machine/${key}`);
  if (!m) return h("div", { class: "page main" }, h("h1", {}, "There is no such machine"), h("p", { class: "dim" }, "It may have been deleted. ", h("a", { href: "/machines" }, "All machines")));
  const c = get(`cluster/${m.cluster}`);
  return h("div", { class: "scroll main" }, h("div", { class: "page" },
    h("div", { class: "crumbs" }, h("a", { href: "/clusters" }, "Clusters"), h("span", {}, "/"), square(c), c && h("a", { href: `/cluster/${m.cluster}` }, c.name), h("span", {}, "/"), h("span", {}, m.group), h("span", {}, "/")),
    h("div", { class: "title" }, h("h1", {}, m.name), !isReady(m.state) && h("span", { class: `pill ${icon(m.state) ? { creating: "moving", attaching: "moving", deleting: "moving" }[m.state] || m.state : ""}` }, icon(m.state), m.headline || m.sentence),
      h("span", { class: "dim" }, [m.host && `${m.region}/${m.host}`, m.vmid && `VMID ${m.vmid}`, m.address, m.version].filter(Boolean).join(", ")),
      h("span", { class: "right" }, h("button", { class: "btn", onclick: () => yaml(key) }, "YAML"), h("button", { class: "btn", onclick: () => commands(m.name, doings(m, key)) }, "Commands"))),
    h("div", { class: "card now", style: { "--edge": isReady(m.state) ? "var(--ok)" : m.state === "waiting" ? "var(--waiting)" : m.state === "trouble" ? "var(--trouble)" : "var(--moving)" } },
      part("Now", m.now || m.sentence || "Done", m.now_says), part("Next", m.next || "Nothing", m.next_says), part("Reason", m.why, m.why_says)),
    h("div", { class: "side" }, h("div", { class: "stack" }, timeline(m), placement(m, key)), h("div", { class: "stack" }, disks(m), conditions(m), related(m)))));
}
const part = (label, head, text) => h("div", { key: label }, h("span", { class: "sub" }, label), h("b", {}, head || ""), h("span", { class: "dim" }, text || ""));

function timeline(m) {
  if (!m.timeline.length) return null;
  const begin = Date.parse(m.timeline[0].start);
  const running = m.timeline.some((s) => s.start && !s.end);
  const ends = m.timeline.map((s) => (s.end ? Date.parse(s.end) : s.start ? now() : 0));
  const total = Math.max(10, (Math.max(...ends, begin + 10000) - begin) / 1000);
  const x = (iso) => `${(100 * (Date.parse(iso) - begin)) / 1000 / total}%`;
  const w = (seconds) => `${Math.min(100, (100 * seconds) / total)}%`;
  const ticks = [0, 1, 2, 3, 4, 5].map((i) => (i * total) / 6);
  return h("div", { class: "card" }, h("header", {}, h("h2", {}, "From claim to node"), h("span", { class: "sub" }, running ? `${span(total)} so far; the thin line is typical` : `${span(total)} in all; the thin line is typical`), h("span", { class: "sub right" }, `claimed ${clock(m.timeline[0].start)}`)),
    h("div", { class: "gantt" }, h("div", { class: "axis" }, h("div"), h("div", {}, ticks.map((t, i) => h("span", { key: i, style: { left: w(t) } }, span(t)))), h("div", { class: "num" }, "took / typical")),
      m.timeline.map((s) => {
        const took = s.start ? ((s.end ? Date.parse(s.end) : now()) - Date.parse(s.start)) / 1000 : null;
        return h("div", { class: "line", key: s.step }, h("span", { class: "step" }, icon(s.end ? "check" : s.start ? "moving" : "open"), s.step),
          h("div", { class: "track" }, s.start && h("i", { class: s.end ? "" : "on", style: { left: x(s.start), width: w(took) } }), s.start && s.typical && h("u", { style: { left: x(s.start), width: w(s.typical), "max-width": `calc(100% - ${x(s.start)})` } }), h("span", { style: s.start && Date.parse(s.start) - begin > total * 600 ? { right: "0" } : { left: s.start ? x(s.start) : "0" } }, s.sentence)),
          h("span", { class: "took" }, h("b", {}, took === null ? h("span", { class: "faint" }, "not yet") : took < 10 ? `${took.toFixed(1)} s` : span(took)), h("span", { class: "sub" }, s.typical ? (s.typical < 10 ? `${s.typical.toFixed(1)} s` : span(s.typical)) : "")));
      })));
}
// Requested when the page opens and every 30 seconds: the answer changes with the hosts.
function places(key) {
  const known = view.places[key];
  if (!known || performance.now() - known.at > 30000) {
    view.places[key] = { at: performance.now(), rows: known ? known.rows : [] };
    ask("explain", { key }).then((answer) => { view.places[key].rows = answer.rows; paint(true); }, () => {});
  }
  return view.places[key].rows;
}
function placement(m, key) {
  const rows = places(key);
  if (!rows.length) return null;
  return h("div", { class: "card" }, h("header", {}, h("h2", {}, m.host ? `Why ${m.host}` : "Possible hosts"), h("span", { class: "sub" }, m.asked || "")),
    h("table", {}, h("thead", {}, h("tr", {}, ["", "Host", "Memory allocated", "Verdict", "Because"].map((t, i) => h("th", { key: i }, t)))),
      h("tbody", {}, rows.map((p) => h("tr", { key: `${p.region}/${p.host}`, class: p.chosen ? "chosen" : "" }, h("td", { class: "icon" }, icon(p.fits || p.chosen ? "check" : "cross")), h("td", {}, h("span", { class: "faint" }, `${p.region}/`), h("b", {}, p.host)),
        h("td", {}, h("span", { class: "free" }, h("i", { style: { width: `${Math.min(100, 100 * p.load)}%` } })), `${Math.round(100 * p.load)} %`), h("td", {}, h("b", {}, p.verdict)), h("td", { class: "dim wide" }, p.because))))));
}
function doings(m, key) {
  const [space, name] = key.split("/");
  return [["Explain its state, its next move and its host", `moxwell explain machine ${name} -n ${space}`], ["Compare Kubernetes with Proxmox", "moxwell verify"], ["Replace it: its MachineSet creates another one", `moxwell delete machine ${name} -n ${space}`]];
}
function disks(m) {
  const rows = (m.volumes || []).map((k) => ({ key: k, ...get(k) })).filter((v) => v.name);
  if (!rows.length) return null;
  return h("div", { class: "card" }, h("header", {}, h("h2", {}, "Volumes"), h("span", { class: "sub" }, plural(rows.length, "disk"))), h("div", { class: "conds" }, rows.map((v) => h("div", { key: v.key }, glyph(v.state), h("b", {}, v.claim.split("/").pop() || v.name), h("span", {}, `${gib(v.size_mib)} GiB`), h("span", { class: "faint" }, since(v.since)), h("span", { class: "sub" }, v.guest === m.name && v.state === "ready" ? `${v.storage}: ${v.disk}` : `${v.storage}: ${v.sentence}`)))));
}
function conditions(m) {
  return h("div", { class: "card" }, h("header", {}, h("h2", {}, "Conditions")), h("div", { class: "conds" }, m.conditions.map((c) => h("div", { key: c.type }, icon(c.status === "True" ? "check" : c.status === "Unknown" ? "unknown" : "waiting"), h("b", {}, c.type), h("span", {}, c.status), h("span", { class: "faint" }, since(c.since)), h("span", { class: "sub" }, [c.reason, c.message].filter(Boolean).join(": "))))));
}
function related(m) {
  return h("div", { class: "card" }, h("header", {}, h("h2", {}, "Related")), h("div", { class: "tree" }, m.related.map((r, i) => h("div", { key: i, style: { "margin-left": `${r.depth * 12}px` } }, h("span", { class: "sub" }, r.kind), r.name))));
}
export async function yaml(key) {
  try { view.sheet = { kind: "yaml", title: key, text: (await ask("yaml", { key })).text }; } catch (error) { view.sheet = { kind: "yaml", title: key, text: String(error.message) }; }
  paint(true);
}
