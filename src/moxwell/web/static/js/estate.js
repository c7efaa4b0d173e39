// The page "Estate": problems first, then all hosts with their guests, drawn to scale.
import { h } from "./dom.js";
import { all, get } from "./live.js";
import { clock, gib, percent, plural, since } from "./format.js";
import { icon, isReady, square } from "./icons.js";
import { feed } from "./feed.js";
import { emptyPage } from "./empty.js";
import { view } from "./view.js";

const order = (a, b) => a.name.localeCompare(b.name, undefined, { numeric: true });

export function estate() {
  const regions = all("region").sort(order);
  const hosts = all("host");
  const guests = all("guest");
  if (!all("cluster").length) return emptyPage(regions, hosts);
  return h("div", { class: "estate main" },
    h("div", { class: "map scroll" }, problems(), regions.map((r) => region(r, hosts, guests, r.name === (view.phone ? regions.at(-1).name : narrowest(regions, hosts))))),
    feed());
}

// The legend and the waiting machines are drawn beside the narrowest region.
const narrowest = (regions, hosts) => regions.map((r) => [hosts.filter((x) => x.region === r.name).reduce((n, x) => n + x.blocks.reduce((c, b) => c + b.columns, 0), 0), r.name]).sort((a, b) => a[0] - b[0])[0]?.[1];

const SHOWN = 6;
function problems() {
  const rows = all("problem").sort((a, b) => a.rank - b.rank || a.key.localeCompare(b.key));
  return h("div", { class: "problems", "aria-live": "polite" }, rows.slice(0, SHOWN).map((p) =>
    h("a", { key: p.key, class: `card problem ${p.state === "creating" ? "moving" : p.state}`, href: p.href || "/" },
      icon(p.state), h("b", {}, p.title), h("time", {}, p.count || since(p.since)),
      h("p", {}, p.text, p.text.endsWith(".") ? " " : ". ", p.next && [h("b", {}, "Next: "), p.next]))),
    rows.length > SHOWN && h("a", { key: "more", class: "card problem unknown", href: "/machines" }, h("span"), h("b", {}, `${rows.length - SHOWN} more`), h("time"), h("p", {}, "All machines that are not ready are on the page Machines.")));
}

export function region(r, hosts, guests, withKey) {
  const own = hosts.filter((x) => x.region === r.name).sort(order);
  const mine = byHost(guests.filter((g) => g.region === r.name));
  const count = [...mine.values()].reduce((n, g) => n + g.length, 0);
  const known = own.length ? `${plural(own.length, "host")}, ${plural(count, "guest")}` : r.read ? "no host was seen since Moxwell started" : "reading it";
  return h("section", { class: `region ${r.reachable ? "" : "stale"}`, key: r.key, "aria-label": `Region ${r.name}` },
    h("header", {}, h("h2", {}, r.name), h("span", { class: "sub" }, `${r.simulated ? "simulated, " : ""}${known}`),
      r.reachable ? r.cores > 0 && [meter("cpu", r.cpu, `of ${r.cores} cores`), meter("memory", r.memory, `of ${gib(r.memory_mib)} GiB`)] : h("span", { class: "pill trouble" }, icon("trouble", "s"), own.length ? `does not answer; as of ${clock(r.since)}` : "does not answer"),
      r.without.length > 0 && h("span", { class: "sub" }, `without ${r.without.join(", ")}`)),
    h("div", { class: "hosts" }, own.map((x) => host(x, mine.get(x.name) || [], r)), withKey && aside()));
}
function byHost(guests) {
  const found = new Map();
  for (const g of guests) found.has(g.host) ? found.get(g.host).push(g) : found.set(g.host, [g]);
  return found;
}

function meter(name, m, of) {
  return h("span", { class: "live", key: name }, name, bar(m), h("span", {}, `${percent(m.promised)} ${of}`));
}
export function bar(m) {
  if (!m || m.promised === null) return h("span", { class: "bar" });
  const limit = m.limit || 1;
  const pc = (x) => `${Math.min(100, (100 * x) / limit).toFixed(1)}%`;
  return h("span", { class: "bar" }, h("i", { style: { width: pc(m.promised) } }), h("b", { style: { width: pc(m.used || 0) } }),
    limit > 1 && h("u", { style: { left: pc(1) } }));
}

function host(x, mine, r) {
  const bad = x.state === "trouble";
  return h("article", { key: x.key, class: `host ${bad ? (r.reachable ? "trouble" : "away") : ""}`, "data-say": sayHost(x, mine), "data-host": x.key, tabindex: -1, "aria-label": sayHost(x, mine) },
    h("header", {}, bad && r.reachable && icon("trouble"), h("b", {}, x.name), x.zone && x.zone !== x.name && h("span", { class: "sub" }, x.zone),
      h("span", { class: "right" }, bad ? (r.reachable ? h("b", { class: "trouble" }, `no answer ${since(x.since)}`) : "unknown") : `${x.cores} c, ${Math.round(x.memory_mib / 1024)} G`)),
    h("div", { class: "figures" }, figure("cpu", bad ? null : x.cpu), figure("mem", bad ? null : x.memory)),
    h("div", { class: "blocks" }, x.blocks.map((b, i) => block(x, b, i, mine.filter((g) => g.block === i)))));
}
const figure = (name, m) => [h("span", { key: `${name}n` }, name), h("span", { key: `${name}b`, class: "in" }, bar(m)), h("span", { key: `${name}p`, class: "pc" }, m ? percent(m.promised) : "?")];
function sayHost(x, mine) {
  const free = x.memory_mib - x.promised_mib;
  const bound = x.blocks.filter((b) => b.label).map((b) => `${b.label}: ${b.cores} cores, ${gib(b.memory_mib)} GiB, ${gib(b.bound_mib)} bound`).join("; ");
  return `${x.region}/${x.name}: ${plural(mine.length, "guest")}, ${x.state === "trouble" ? "does not answer" : `${gib(free)} GiB not allocated of ${gib(x.memory_mib)}, ${x.cores} cores`}${bound ? `. ${bound}` : ""}`;
}
// A NUMA node has a label and figures only where the host agent published them.
function block(x, b, i, mine) {
  return h("div", { class: "block", key: i },
    b.label && h("div", { class: "numa" }, h("span", {}, b.label), h("span", {}, `${b.cores} c, ${Math.round(b.memory_mib / 1024)} G`), h("span", { class: "bound" }, `bound ${Math.round(b.bound_mib / 1024)} G`)),
    h("div", { class: "cells", style: { "grid-template-columns": `repeat(${b.columns}, var(--cell))` } }, [...mine].sort((a, b) => b.w * b.h - a.w * a.h).map(tile), plannedTiles(x, b, i, mine)));
}
const spot = (g) => (view.phone
  ? { "grid-column": `span ${Math.min(8, g.h)}`, "grid-row": `span ${g.w}` }
  : { "grid-column": `${g.x + 1} / span ${g.w}`, "grid-row": `${g.y + 1} / span ${g.h}` });

export function tile(g) {
  const c = g.cluster && get(`cluster/${g.cluster}`);
  const look = c ? `h${c.hue} p${c.pattern}` : "foreign";
  const style = { ...spot(g), "--mem": g.mem_used === null ? "0%" : `${Math.round(g.mem_used * 100)}%`, "--cpu": g.cpu_used ?? 0 };
  const href = g.machine ? `/machine/${g.machine}` : null;
  const said = say(g, c);
  return h("a", { key: g.key, class: `tile ${look} ${isReady(g.state) ? "" : g.state} ${view.lit === g.key ? "lit" : ""}`, href, tabindex: 0, role: href ? null : "img", style,
    "data-guest": g.key, "data-say": said, "aria-label": said },
    h("span", { class: "n" }, g.short), g.move && (view.phone ? g.w : g.h) > 1 && h("span", { class: "m" }, g.move),
    g.pods > 0 && g.h > 1 && h("span", { class: "pods" }, Array.from({ length: Math.min(g.pods, 24) }, (_, i) => h("i", { key: i }))),
    g.volumes > 0 && h("span", { class: "disks" }, icon("volumes"), g.volumes), !isReady(g.state) && icon(g.state));
}
function say(g, c) {
  const where = `${g.region}/${g.host}, VMID ${g.vmid}`;
  const size = `${g.cpus} vCPU, ${gib(g.memory_mib)} GiB`;
  if (!g.ours) return `${g.name}: not ours${g.sentence ? `. ${g.sentence}` : ""}. ${where}, ${size}`;
  const used = g.mem_used === null ? "" : `, memory ${percent(g.mem_used)} used, cpu ${percent(g.cpu_used)}`;
  return `${g.name}${c ? ` of ${c.name}` : ""}: ${g.sentence || "Done"}. ${where}, ${size}${used}${g.pods ? `, ${plural(g.pods, "pod")}` : ""}${g.volumes ? `, ${plural(g.volumes, "volume")} of ${gib(g.volumes_mib)} GiB` : ""}`;
}
// Machines of a plan, in the first free cells.
function plannedTiles(x, b, i, mine) {
  const rows = (view.planned || []).filter((m) => m.region === x.region && m.host === x.name);
  if (!rows.length || i > 0) return null;
  const taken = new Set();
  for (const g of mine) for (let c = g.x; c < g.x + g.w; c += 1) for (let r = g.y; r < g.y + g.h; r += 1) taken.add(`${c}/${r}`);
  return rows.map((m, n) => {
    for (let c = 0; c < b.columns; c += 1) for (let r = 0; r < 7; r += 1) {
      if (taken.has(`${c}/${r}`) || taken.has(`${c}/${r + 1}`)) continue;
      taken.add(`${c}/${r}`).add(`${c}/${r + 1}`);
      return h("span", { key: `plan-${n}`, class: "tile planned", style: spot({ x: c, y: r, w: 1, h: 2 }) }, h("span", { class: "n" }, m.group), h("span", { class: "m" }, "planned"));
    }
    return null;
  });
}
function aside() {
  const waits = all("waiting");
  return h("div", { class: "aside" },
    waits.length > 0 && h("div", { class: "tray" }, h("header", {}, h("h2", {}, `Waiting for a host, ${waits.length}`)),
      alike(waits).slice(0, 6).map(([w, n]) => {
        const c = get(`cluster/${w.cluster}`);
        return h("a", { key: w.key, href: n > 1 ? `/cluster/${w.cluster}` : `/machine/${w.machine}`, class: `tile waiting ${c ? `h${c.hue} p${c.pattern}` : ""}`, "data-say": w.sentence, "aria-label": `${n > 1 ? `${n} machines such as ` : ""}${w.short}: ${w.sentence}`,
          style: { width: `calc(var(--cell) * ${w.w})`, height: `calc(var(--row) * ${w.h})`, "--mem": "0%" } }, h("span", { class: "n" }, n > 1 ? `${n} × ${w.group}` : w.short), icon("waiting"));
      }), h("p", { class: "sub" }, waits[0].sentence)),
    key());
}
// Machines of one group and size are one tile.
function alike(waits) {
  const found = new Map();
  for (const w of waits) { const same = `${w.cluster}/${w.group}/${w.w}x${w.h}`; found.set(same, [w, (found.get(same)?.[1] || 0) + 1]); }
  return [...found.values()];
}
function key() {
  const clusters = all("cluster").sort(order);
  const states = [["creating", "creating"], ["moving", "moving"], ["deleting", "deleting"], ["waiting", "waiting"], ["unknown", "unknown"], ["trouble", "failed"]];
  return h("div", { class: "key" },
    h("p", {}, "Area: memory, a cell is 8 GiB. Shade: memory used. Line below: cpu used. Dot: pod. Cylinder: volumes. Bars: allocated and used; tick: physical cores."),
    h("ul", {}, clusters.map((c) => h("li", { key: c.key }, square(c), h("a", { href: `/cluster/${c.key.slice(8)}` }, c.name))), h("li", { key: "not" }, h("span", { class: "sq", style: { background: "none", border: "1px dashed var(--foreign)" } }), "not ours")),
    h("ul", {}, states.map(([s, word]) => h("li", { key: s }, icon(s, "s"), word))));
}
