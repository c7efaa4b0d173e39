// Keyboard commands.
import { get, now, paint, scrub, state } from "./live.js";
import { view } from "./view.js";
import { yaml } from "./machines.js";
import { found } from "./find.js";
import { PAGES } from "./pages.js";
import { go, page } from "./route.js";
import { close, open } from "./sheet.js";
import { toggle } from "./theme.js";

export const help = () => [["/", "find a cluster, machine, host, guest, volume or address"], ...PAGES.map((p) => [`g ${p.key}`, p.label.toLowerCase()]), ["arrows", "walk guests by position"], ["enter", "open"], ["u", "up"], ["j k", "next and previous row"], ["f", "filter"], ["y", "YAML of the machine"], ["[ ]", "15 seconds back and on"], ["l", "back to live"], ["t", "light or dark"], ["?", "these keys"]];
let prefix = "";

export function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return undefined;
  if (event.key === "Escape") return close();
  if (view.sheet && event.key === "Tab") return stay(event);
  if (view.sheet?.kind === "find") return findKey(event);
  if (view.sheet || event.target.matches?.("input, textarea")) return undefined;
  if (prefix === "g") {
    prefix = "";
    const wanted = PAGES.find((p) => p.key === event.key);
    if (wanted) { event.preventDefault(); return go(`/${wanted.name}`); }
  }
  if (event.key === "Enter" && event.target.matches?.("button, a[href]")) return undefined;
  const act = ACTS[event.key];
  if (act) { event.preventDefault(); act(); }
  return undefined;
}
// Tab stays inside an open dialog.
function stay(event) {
  const inside = [...document.querySelectorAll(".sheet :is(input, a[href], button)")];
  const at = inside.indexOf(document.activeElement) + (event.shiftKey ? -1 : 1);
  event.preventDefault();
  inside.at(at >= inside.length ? 0 : at)?.focus();
}
const ACTS = {
  g: () => { prefix = "g"; }, "/": () => open({ kind: "find" }), "?": () => open({ kind: "keys" }),
  "[": () => step(-15), "]": () => step(15), l: () => scrub(null), t: toggle,
  u: () => go(page()[0] === "machine" ? `/cluster/${get(`machine/${page()[1]}`)?.cluster || ""}` : page()[0] === "cluster" ? "/clusters" : "/"),
  y: () => page()[0] === "machine" && yaml(page()[1]), f: () => document.getElementById("filter")?.focus(),
  j: () => row(1), k: () => row(-1), Enter: () => (document.activeElement?.dataset?.href ? go(document.activeElement.dataset.href) : document.activeElement?.click?.()),
  ArrowLeft: () => walk(-1, 0), ArrowRight: () => walk(1, 0), ArrowUp: () => walk(0, -1), ArrowDown: () => walk(0, 1),
};
export function step(seconds) {
  const at = now() + seconds * 1000;
  if (at >= Date.now()) return scrub(null);
  return scrub(new Date(Math.max(at, Date.parse(state.since || 0))).toISOString());
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
function findKey(event) {
  const { hits } = found();
  const hit = hits[view.pick];
  if (event.key === "ArrowDown") view.pick = Math.min(hits.length - 1, view.pick + 1);
  else if (event.key === "ArrowUp") view.pick = Math.max(0, view.pick - 1);
  else if (event.key === "Enter" && hit) { event.preventDefault(); return go(hit.href, hit.reveal); }
  else if (event.key.length === 1 && !event.target.matches?.("input")) { view.query += event.key; view.pick = 0; } // typed before the input was drawn
  else return undefined;
  event.preventDefault();
  return paint(true);
}
