// Keyboard commands.
import { all, now, paint, scrub, state } from "./live.js";
import { view } from "./view.js";
import { yaml } from "./machines.js";
import { go, page } from "./main.js";

export const HELP = [["/", "find a guest, node, host or address"], ["g e", "estate"], ["g c", "clusters"], ["g m", "machines"], ["g v", "volumes"], ["g o", "moves"], ["arrows", "walk guests by position"], ["enter", "open"], ["u", "up"], ["j k", "next and previous row"], ["f", "filter"], ["y", "YAML of the machine"], ["[ ]", "15 seconds back and on"], ["l", "back to live"], ["t", "light or dark"], ["?", "these keys"]];
const PAGES = { e: "/", c: "/clusters", m: "/machines", v: "/volumes", o: "/moves" };
let prefix = "";

export function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") { view.sheet = null; document.activeElement?.blur?.(); return paint(true); }
  if (view.sheet?.kind === "find") return findKey(event);
  if (event.target.matches?.("input, textarea")) return undefined;
  if (prefix === "g") { prefix = ""; if (PAGES[event.key]) { event.preventDefault(); return go(PAGES[event.key]); } }
  const act = ACTS[event.key];
  if (act) { event.preventDefault(); act(); }
  return undefined;
}
const open = (sheet) => () => { view.sheet = sheet; view.query = ""; view.pick = 0; paint(true); };
const ACTS = {
  g: () => { prefix = "g"; }, "/": open({ kind: "find" }), "?": open({ kind: "keys" }),
  "[": () => step(-15), "]": () => step(15), l: () => scrub(null), t: () => theme(),
  u: () => go(page()[0] === "machine" ? `/cluster/${(all("machine").find((m) => m.key === `machine/${page()[1]}`) || {}).cluster || ""}` : page()[0] === "cluster" ? "/clusters" : "/"),
  y: () => page()[0] === "machine" && yaml(page()[1]), f: () => document.getElementById("filter")?.focus(),
  j: () => row(1), k: () => row(-1), Enter: () => (document.activeElement?.dataset?.href ? go(document.activeElement.dataset.href) : document.activeElement?.click?.()),
  ArrowLeft: () => walk(-1, 0), ArrowRight: () => walk(1, 0), ArrowUp: () => walk(0, -1), ArrowDown: () => walk(0, 1),
};
function step(seconds) {
  const at = now() + seconds * 1000;
  if (at >= Date.now()) return scrub(null);
  return scrub(new Date(Math.max(at, Date.parse(state.since || 0))).toISOString());
}
export function theme() {
  const dark = document.documentElement.dataset.theme === "dark";
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("theme", dark ? "light" : "dark");
}
function row(by) {
  const rows = [...document.querySelectorAll("tr[tabindex]")];
  rows[Math.max(0, Math.min(rows.length - 1, rows.indexOf(document.activeElement) + by))]?.focus();
}
// Focuses the nearest guest in a direction.
function walk(dx, dy) {
  const tiles = [...document.querySelectorAll(".cells .tile")];
  const here = document.activeElement?.matches?.(".tile") ? document.activeElement.getBoundingClientRect() : null;
  if (!here) return tiles[0]?.focus();
  const score = (box) => { const x = box.left - here.left, y = box.top - here.top; const along = x * dx + y * dy; return along <= 2 ? Infinity : along + 3 * Math.abs(x * dy + y * dx); };
  const best = tiles.map((t) => [score(t.getBoundingClientRect()), t]).sort((a, b) => a[0] - b[0])[0];
  if (best && best[0] < Infinity) best[1].focus();
  return undefined;
}
export function found() {
  const q = view.query.toLowerCase();
  if (!q) return [];
  const rows = [
    ...all("machine").map((m) => ({ href: `/machine/${m.key.slice(8)}`, cluster: m.cluster, name: m.name, sub: `machine, ${m.region || ""}/${m.host || "not placed"} ${m.address || ""}`, text: `${m.name} ${m.address} ${m.host} ${m.vmid}` })),
    ...all("cluster").map((c) => ({ href: `/cluster/${c.key.slice(8)}`, cluster: c.key.slice(8), name: c.name, sub: "cluster", text: `${c.name} ${c.endpoint}` })),
    ...all("guest").filter((g) => !g.machine).map((g) => ({ href: "/", name: g.name, sub: `guest, not ours, ${g.region}/${g.host}`, text: `${g.name} ${g.vmid} ${g.host}` })),
    ...all("host").map((x) => ({ href: "/", name: `${x.region}/${x.name}`, sub: "host", text: `${x.region}/${x.name}` })),
  ];
  return rows.filter((r) => r.text.toLowerCase().includes(q)).slice(0, 12);
}
function findKey(event) {
  const hits = found();
  if (event.key === "ArrowDown") view.pick = Math.min(hits.length - 1, view.pick + 1);
  else if (event.key === "ArrowUp") view.pick = Math.max(0, view.pick - 1);
  else if (event.key === "Enter" && hits[view.pick]) { view.sheet = null; return go(hits[view.pick].href); }
  else if (event.key.length === 1 && !event.target.matches?.("input")) { view.query += event.key; view.pick = 0; } // typed before the input was drawn
  else return undefined;
  event.preventDefault();
  return paint(true);
}
