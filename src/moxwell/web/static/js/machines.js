// The list of machines and the page of one machine.
import { h } from "./dom.js";
import { all, ask, get, now, paint } from "./live.js";
import { clock, gib, plural, since, span } from "./format.js";
import { glyph, icon, isReady, square } from "./icons.js";
import { view } from "./view.js";
import { commands } from "./commands.js";
import { open } from "./sheet.js";
import { page, table } from "./table.js";

const notReadyFirst = (a, b) => (isReady(a.state) ? 1 : 0) - (isReady(b.state) ? 1 : 0) || a.name.localeCompare(b.name, undefined, { numeric: true });

export function machines() {
  const rows = all("machine");
  return page("Machines", `${plural(rows.length, "machine")} of ${plural(all("cluster").length, "cluster")}`, machineTable(rows, true));
}
const HEADS = [["", "icon"], ["Machine", "name"], ["Cluster"], ["Group"], ["Host"], ["VMID", "num"], ["Address"], ["Version"], ["Volumes", "num"], ["Current move", "wide"], ["For", "num"]];
const SHOWN = 200;
const none = (text = "not yet") => h("span", { class: "faint" }, text);

const absent = (m) => none(m.state === "deleting" ? "none" : "not yet");

export function machineTable(rows, withCluster) {
  const wanted = view.filter.toLowerCase();
  const found = rows.filter((m) => !wanted || `${m.name} ${m.cluster} ${m.host} ${m.region} ${m.sentence} ${m.group} ${m.address} ${m.vmid}`.toLowerCase().includes(wanted)).sort(notReadyFirst);
  const heads = HEADS.filter(([label]) => withCluster || label !== "Cluster");
  const cells = (m) => {
    const c = get(`cluster/${m.cluster}`);
    const own = [glyph(m.state), h("a", { href: `/machine/${m.key.slice(8)}` }, h("b", {}, m.name)), c && h("span", { class: "one" }, square(c), " ", c.name), m.group, m.host ? h("span", {}, h("span", { class: "faint" }, `${m.region}/`), m.host) : absent(m), m.vmid || none("none"), m.address || absent(m), m.version, m.volumes.length || none("none"),
      h("span", { class: isReady(m.state) ? "dim" : "" }, m.sentence || "Done", m.progress !== null && m.progress !== undefined && h("span", { class: "prog" }, h("i", { style: { width: `${Math.round(m.progress * 100)}%` } }))), since(m.since)];
    return withCluster ? own : own.filter((_, i) => i !== 2);
  };
  const shown = found.slice(0, view.more ? undefined : SHOWN);
  const filter = h("input", { class: "find", type: "search", placeholder: "Filter", "aria-label": "Filter machines", id: "filter", value: view.filter, oninput: (e) => { view.filter = e.target.value; paint(true); } });
  return h("section", { class: "card" }, h("header", {}, h("h2", {}, "Machines"), h("span", { class: "sub" }, wanted ? `${found.length} of ${rows.length}` : "not ready first"), h("span", { class: "right" }, filter)),
    found.length ? table(heads, shown.map((m) => ({ key: m.key, href: `/machine/${m.key.slice(8)}`, cells: cells(m) }))) : h("p", { class: "dim" }, wanted ? "No machine matches the filter." : "No machines yet."),
    found.length > shown.length && h("p", {}, h("button", { class: "btn", onclick: () => { view.more = true; paint(true); } }, `Show ${found.length - shown.length} more`)));
}

export function machine(key) {
  const m = get(`machine/${key}`);
  if (!m) return page("There is no such machine", null, h("p", { class: "dim" }, "It may have been deleted. ", h("a", { href: "/machines" }, "All machines")));
  const c = get(`cluster/${m.cluster}`);
  return h("div", { class: "scroll main" }, h("div", { class: "page" },
    h("div", { class: "crumbs" }, h("a", { href: "/clusters" }, "Clusters"), h("span", {}, "/"), square(c), c && h("a", { href: `/cluster/${m.cluster}` }, c.name), h("span", {}, "/"), h("span", {}, m.group), h("span", {}, "/")),
    h("div", { class: "title" }, h("h1", {}, m.name), !isReady(m.state) && h("span", { class: `pill ${{ creating: "moving", attaching: "moving", deleting: "moving" }[m.state] || m.state}` }, icon(m.state), m.headline || m.sentence),
      h("span", { class: "dim" }, [m.host && `${m.region}/${m.host}`, m.vmid && `VMID ${m.vmid}`, m.address, m.version].filter(Boolean).join(", ")),
      h("span", { class: "right" }, h("button", { class: "btn", onclick: () => yaml(key) }, "YAML"), h("button", { class: "btn", onclick: () => commands(m.name, doings(m, key)) }, "Commands"))),
    h("div", { class: "card now", style: { "--edge": isReady(m.state) ? "var(--ok)" : m.state === "waiting" ? "var(--waiting)" : m.state === "trouble" ? "var(--trouble)" : m.state === "unknown" ? "var(--unknown)" : "var(--moving)" } },
      part("Now", m.now || m.sentence || "Done", m.now_says), part("Next", m.next || "Nothing", m.next_says), part("Reason", m.why, m.why_says)),
    h("div", { class: "side" }, h("div", { class: "stack" }, timeline(m), placement(m, key)), h("div", { class: "stack" }, disks(m), conditions(m), related(m)))));
}
const part = (label, head, text) => h("div", { key: label }, h("span", { class: "sub" }, label), h("b", {}, head || ""), h("span", { class: "dim" }, text || ""));

const STEPS = [2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400]; // seconds between two figures
function timeline(m) {
  if (!m.timeline.length) return null;
  const begin = Date.parse(m.timeline[0].start);
  const running = m.timeline.some((s) => s.start && !s.end);
  const ends = m.timeline.map((s) => (s.end ? Date.parse(s.end) : s.start ? now() : 0));
  const total = Math.max(10, (Math.max(...ends, begin + 10000) - begin) / 1000);
  const x = (iso) => `${(100 * (Date.parse(iso) - begin)) / 1000 / total}%`;
  const w = (seconds) => `${Math.min(100, (100 * seconds) / total)}%`;
  const step = STEPS.find((seconds) => total / seconds <= 6) || total / 6;
  const ticks = [...Array(Math.floor(total / step) + 1).keys()].map((i) => i * step).filter((t) => t < 0.95 * total);
  return h("div", { class: "card" }, h("header", {}, h("h2", {}, "From claim to node"), h("span", { class: "sub" }, running ? `${span(total)} so far; the thin line is typical` : `${span(total)} in all; the thin line is typical`), h("span", { class: "sub right" }, `claimed ${clock(m.timeline[0].start)}`)),
    h("div", { class: "gantt" }, h("div", { class: "axis" }, h("div"), h("div", {}, ticks.map((t, i) => h("span", { key: i, style: { left: w(t) } }, span(t)))), h("div", { class: "num" }, "took / typical")),
      m.timeline.map((s) => {
        const took = s.start ? ((s.end ? Date.parse(s.end) : now()) - Date.parse(s.start)) / 1000 : null;
        return h("div", { class: "line", key: s.step }, h("span", { class: "step" }, icon(s.end ? "check" : s.start ? "moving" : "open"), s.step),
          h("div", { class: "track" }, s.start && s.observed && h("i", { class: s.end ? "" : "on", style: { left: x(s.start), width: w(took) } }), s.start && s.typical && h("u", { style: { left: x(s.start), width: w(s.typical), "max-width": `calc(100% - ${x(s.start)})` } }), h("span", { style: s.start && Date.parse(s.start) - begin > total * 600 ? { right: "0" } : { left: s.start ? x(s.start) : "0" } }, s.sentence)),
          h("span", { class: "took" }, h("b", {}, took === null ? none() : !s.observed ? none("not seen") : `${s.at_most ? "≤ " : ""}${took < 10 ? `${took.toFixed(1)} s` : span(took)}`), h("span", { class: "sub" }, s.typical ? (s.typical < 10 ? `${s.typical.toFixed(1)} s` : span(s.typical)) : "")));
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
    table([["", "icon"], ["Host", "name"], ["CPU and memory"], ["Verdict"], ["Because", "wide dim"]], rows.map((p) => ({ key: `${p.region}/${p.host}`, class: p.chosen ? "chosen" : "", cells: [icon(p.fits || p.chosen ? "check" : "cross"), h("span", {}, h("span", { class: "faint" }, `${p.region}/`), h("b", {}, p.host)),
      h("span", { class: "one" }, h("span", { class: "free" }, h("i", { style: { width: `${Math.min(100, 100 * p.load)}%` } })), `${Math.round(100 * p.load)} %`), h("b", {}, p.verdict), p.because] }))));
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
  const text = await ask("yaml", { key }).then((answer) => answer.text, (error) => String(error.message));
  open({ kind: "yaml", title: key, text });
}
