// The page "Estate": problems first, then all hosts with their guests, drawn to scale.
import { h } from "./dom.js";
import { all, get } from "./live.js";
import { clock, gib, percent, plural, since, tail } from "./format.js";
import { glyph, icon, isReady, square } from "./icons.js";
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
    h("div", { class: "map scroll" }, problems(), regions.map((r) => region(r, hosts, guests, r.name === narrowest(regions, hosts)))),
    feed());
}

// The legend and the waiting machines are drawn beside the narrowest region.
const narrowest = (regions, hosts) => regions.map((r) => [hosts.filter((x) => x.region === r.name).reduce((n, x) => n + x.blocks.reduce((c, b) => c + b.columns, 0), 0), r.name]).sort((a, b) => a[0] - b[0])[0]?.[1];

function problems() {
  const rows = all("problem").sort((a, b) => a.rank - b.rank || a.key.localeCompare(b.key));
  const shown = rows.slice(0, 6);
  return h("div", { class: "problems", "aria-live": "polite" }, shown.map((p) =>
    h("a", { key: p.key, class: `card problem ${p.state === "creating" ? "moving" : p.state}`, href: p.href || "/" },
      icon(p.state), h("b", {}, p.title), h("time", {}, p.count || since(p.since)),
      h("p", {}, p.text, p.text.endsWith(".") ? " " : ". ", p.next && [h("b", {}, "Next: "), p.next]))));
}

export function region(r, hosts, guests, withKey) {
  const own = hosts.filter((x) => x.region === r.name).sort(order);
  const mine = guests.filter((g) => g.region === r.name);
  return h("section", { class: "region", key: r.key },
    h("header", {}, h("h2", {}, r.name),
      h("span", { class: "sub" }, `${r.simulated ? "simulated, " : ""}${plural(own.length, "host")}, ${plural(mine.length, "guest")}`),
      meter("cpu", r.cpu, `of ${r.cores} cores`), meter("memory", r.memory, `of ${gib(r.memory_mib)} GiB`),
      r.without.length > 0 && h("span", { class: "sub" }, `without ${r.without.join(", ")}`)),
    h("div", { class: "hosts" }, own.map((x) => host(x, mine)), withKey && aside()));
}

function meter(name, m, of) {
  return h("span", { class: "live" }, name, bar(m), h("span", {}, `${percent(m.promised)} ${of}`));
}
export function bar(m) {
  if (!m || m.promised === null) return h("span", { class: "bar" });
  const limit = m.limit || 1;
  const pc = (x) => `${Math.min(100, (100 * x) / limit).toFixed(1)}%`;
  return h("span", { class: "bar" }, h("i", { style: { width: pc(m.promised) } }), h("b", { style: { width: pc(m.used || 0) } }),
    limit > 1 && h("u", { style: { left: pc(1) } }));
}

export function host(x, guests) {
  const mine = guests.filter((g) => g.host === x.name);
  const bad = x.state === "trouble";
  return h("article", { key: x.key, class: `host ${bad ? "trouble" : ""}`, "data-say": sayHost(x, mine) },
    h("header", {}, bad && icon("trouble"), h("b", {}, x.name), x.zone && x.zone !== x.name && h("span", { class: "sub" }, x.zone),
      bad && h("span", { class: "right" }, `no answer ${since(x.since)}`)),
    h("div", { class: "blocks" }, x.blocks.map((b, i) => block(x, b, i, mine.filter((g) => g.block === i), bad))));
}
function sayHost(x, mine) {
  const free = x.memory_mib - x.promised_mib;
  return `${x.region}/${x.name}: ${plural(mine.length, "guest")}, ${x.state === "trouble" ? "does not answer" : `${gib(free)} GiB not allocated of ${gib(x.memory_mib)}, ${x.cores} cores`}`;
}
function block(x, b, i, mine, bad) {
  return h("div", { class: "block", key: i },
    h("div", { class: "figures" },
      h("span", { class: "what" }, h("span", {}, b.label), h("span", {}, `${b.cores} c, ${Math.round(b.memory_mib / 1024)} G`)),
      h("span", {}, "cpu"), bar(bad ? null : b.cpu), h("span", { class: "pc" }, bad ? "?" : percent(b.cpu.promised)),
      h("span", {}, "mem"), bar(bad ? null : b.memory), h("span", { class: "pc" }, bad ? "?" : percent(b.memory.promised))),
    h("div", { class: "cells", style: { "grid-template-columns": `repeat(${b.columns}, var(--cell))` } }, mine.map(tile), plannedTiles(x, b, i, mine)));
}
const spot = (g) => (view.phone
  ? { "grid-column": `span ${Math.min(8, g.h)}`, "grid-row": `span ${g.w}` }
  : { "grid-column": `${g.x + 1} / span ${g.w}`, "grid-row": `${g.y + 1} / span ${g.h}` });

export function tile(g) {
  const c = g.cluster && get(`cluster/${g.cluster}`);
  const look = c ? `h${c.hue} p${c.pattern}` : "foreign";
  const style = { ...spot(g), "--mem": g.mem_used === null ? "0%" : `${Math.round(g.mem_used * 100)}%`, "--cpu": g.cpu_used ?? 0 };
  const href = g.machine ? `/machine/${g.machine}` : null;
  return h("a", { key: g.key, class: `tile ${look} ${isReady(g.state) ? "" : g.state} ${view.lit === g.key ? "lit" : ""}`, href, tabindex: 0, style,
    "data-guest": g.key, "data-say": say(g, c), "aria-label": say(g, c) },
    h("span", { class: "n" }, g.short), g.move && g.h > 1 && h("span", { class: "m" }, g.move),
    g.pods > 0 && g.h > 1 && h("span", { class: "pods" }, Array.from({ length: Math.min(g.pods, 24) }, (_, i) => h("i", { key: i }))),
    !isReady(g.state) && icon(g.state));
}
function say(g, c) {
  const where = `${g.region}/${g.host}, VMID ${g.vmid}`;
  const size = `${g.cpus} vCPU, ${gib(g.memory_mib)} GiB`;
  if (!g.ours) return `${g.name}: not ours. ${where}, ${size}`;
  const used = g.mem_used === null ? "" : `, memory ${percent(g.mem_used)} used, cpu ${percent(g.cpu_used)}`;
  return `${g.name}${c ? ` of ${c.name}` : ""}: ${g.sentence || "Done"}. ${where}, ${size}${used}${g.pods ? `, ${plural(g.pods, "pod")}` : ""}`;
}
// Machines of a plan, in the first free cells of the block with the most free memory.
function plannedTiles(x, b, i, mine) {
  const rows = (view.planned || []).filter((m) => m.region === x.region && m.host === x.name);
  if (!rows.length || i !== emptiest(x)) return null;
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
const emptiest = (x) => x.blocks.map((b, i) => [b.memory.promised || 0, i]).sort((a, c) => a[0] - c[0])[0][1];

function aside() {
  const waits = all("waiting");
  return h("div", { class: "aside" },
    waits.length > 0 && h("div", { class: "tray" }, h("header", {}, h("h2", {}, `Waiting for a host  ${waits.length}`)),
      waits.slice(0, 8).map((w) => {
        const c = get(`cluster/${w.cluster}`);
        return h("a", { key: w.key, href: `/machine/${w.machine}`, class: `tile waiting ${c ? `h${c.hue} p${c.pattern}` : ""}`, "data-say": w.sentence,
          style: { width: `calc(var(--cell) * ${w.w})`, height: `calc(var(--row) * ${w.h})`, "--mem": "0%" } }, h("span", { class: "n" }, w.short), icon("waiting"));
      }), h("p", { class: "sub" }, waits[0].sentence)),
    key());
}
function key() {
  const clusters = all("cluster").sort(order);
  const states = [["creating", "creating"], ["moving", "moving"], ["deleting", "deleting"], ["waiting", "waiting"], ["unknown", "unknown"], ["trouble", "failed"]];
  return h("div", { class: "key" },
    h("p", {}, "Area: memory, a cell is 8 GiB. Shade: memory used. Line below: cpu used. Dot: pod. Bars: allocated and used; tick: physical cores."),
    h("ul", {}, clusters.map((c) => h("li", { key: c.key }, square(c), h("a", { href: `/cluster/${c.key.slice(8)}` }, c.name))), h("li", { key: "not" }, h("span", { class: "sq", style: { background: "none", border: "1px dashed var(--foreign)" } }), "not ours")),
    h("ul", {}, states.map(([s, word]) => h("li", { key: s }, icon(s, "s"), word))));
}
