// The feed: machines in progress, events, and a histogram of the last twenty minutes.
import { h } from "./dom.js";
import { all, get, now, state } from "./live.js";
import { clock, since, two } from "./format.js";
import { glyph, icon, square } from "./icons.js";
import { step } from "./keys.js";
import { view } from "./view.js";

const BIN = 15000;
const BINS = 80;

export function feed() {
  const [moves, held] = movesNow();
  const done = events();
  return h("aside", { class: `feed ${moves.length + held.length ? "" : "quiet"}`, "aria-label": "Now" },
    h("header", {}, h("h2", {}, "Now"), h("span", { class: "sub" }, "machines in progress and events"), h("span", { class: "grow" }), times()),
    pulse(done),
    h("div", { class: "list" },
      h("h3", { key: "u" }, `In progress, ${moves.length}`, h("span", {}, "for")),
      moves.map(inProgressRow),
      held.length > 0 && [h("h3", { key: "w" }, `Waiting or unknown, ${held.length}`, h("span", {}, "for")), held.map(inProgressRow)],
      h("h3", { key: "d" }, "Done", h("span", {}, "at")),
      done.slice(0, 40).map(doneRow), !done.length && h("p", { key: "n", class: "sub" }, `Nothing since ${state.since ? clock(state.since) : "the start"}.`)));
}
export const events = () => all("event").sort((a, b) => b.number - a.number);
const HELD = new Set(["waiting", "unknown", "trouble"]);
// What moves, and what waits, is unknown or failed; the oldest first.
export function movesNow() {
  const rows = all("move").sort((a, b) => (a.since || "").localeCompare(b.since || ""));
  return [rows.filter((m) => !HELD.has(m.state)), rows.filter((m) => HELD.has(m.state))];
}
// Steps through the past; the keys [ ] and l do the same.
export function times() {
  return h("span", { class: "times" }, h("button", { class: "btn icon s", "aria-label": "15 seconds back", title: "15 seconds back", onclick: () => step(-15) }, icon("back", "s")),
    h("button", { class: "btn icon s", "aria-label": "15 seconds on", title: "15 seconds on", disabled: !state.scrub, onclick: () => step(15) }, icon("on", "s")));
}
export function who(r) {
  const c = r.cluster && get(`cluster/${r.cluster}`);
  return h("span", { class: "who" }, square(c), h("span", { class: "t" }, r.name));
}
export function inProgressRow(m) {
  return h("a", { key: m.key, class: `row ${m.guest && view.lit === m.guest ? "lit" : ""}`, href: m.href || null, "data-guest": m.guest },
    icon(m.state), who(m), h("time", {}, since(m.since)), h("span", { class: "what" }, m.sentence),
    m.progress !== null && m.progress !== undefined && h("span", { class: "prog" }, h("i", { style: { width: `${Math.round(m.progress * 100)}%` } })));
}
export function doneRow(e) {
  return h("a", { key: e.key, class: "row done", href: e.href || null, "data-guest": e.guest }, glyph(e.state), who(e), h("time", {}, clock(e.at)), h("span", { class: "what" }, e.sentence));
}
function pulse(done) {
  const end = now();
  const bins = new Array(BINS).fill(0);
  const bad = new Array(BINS).fill(false);
  for (const e of done) {
    const i = BINS - 1 - Math.floor((end - Date.parse(e.at)) / BIN);
    if (i >= 0 && i < BINS) { bins[i] += 1; bad[i] = bad[i] || e.state === "trouble"; }
  }
  const top = Math.max(4, ...bins);
  const label = (i) => { const d = new Date(end - (BINS - i) * BIN); return `${two(d.getHours())}:${two(d.getMinutes())}`; };
  return h("div", { class: "pulse" }, h("svg", { viewBox: "0 0 290 32", preserveAspectRatio: "none", role: "img", "aria-label": "Events of the last twenty minutes" },
    bins.map((n, i) => n > 0 && h("rect", { key: i, class: bad[i] ? "bad" : "", x: i * 3.6, width: 2.8, y: 30 - (28 * n) / top, height: (28 * n) / top })),
    h("rect", { key: "now", x: 288, width: 1.6, y: 0, height: 32 })), h("div", {}, [0, 27, 54].map((i) => h("span", { key: i, style: { left: `${(100 * i) / BINS}%` } }, label(i)))));
}
