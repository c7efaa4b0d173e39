// The page: a frame, a route, and one paint a second at the most. Durations tick here; nothing polls.
import { h, render } from "./dom.js";
import { all, connect, get, isLive, onPaint, paint, scrub, state, watch } from "./live.js";
import { brand, icon, square } from "./icons.js";
import { clock, plural, span } from "./format.js";
import { estate } from "./estate.js";
import { found } from "./find.js";
import { help, onKey } from "./keys.js";
import { close, open } from "./sheet.js";
import { PAGES, ROUTES, shows } from "./pages.js";
import { go, page } from "./route.js";
import { list, localize } from "./commands.js";
import { choose, toggle } from "./theme.js";
import { measure, view } from "./view.js";

function draw() {
  const [name, key] = page();
  measure(widest(), !all("cluster").length);
  const ready = state.records.size > 0;
  const body = ready ? (ROUTES[name] || estate)(key) : h("p", { class: "boot main" }, "Waiting for the first data from Moxwell.");
  const label = PAGES.find((p) => shows(p, name))?.label;
  document.title = label && name ? `${key ? key.split("/").pop() : label}, Moxwell` : "Moxwell";
  render(document.getElementById("root"), h("div", { class: `frame ${state.scrub ? "scrubbed" : ""} ${ready && !isLive() && !state.scrub ? "lost" : ""}` },
    top(name), h("main", { class: "body", key: "body" }, ready && banner(), body), readout(name, key), nav(name), sheet()));
  const dialog = document.querySelector(".sheet");
  if (dialog && !dialog.contains(document.activeElement)) dialog.querySelector("input, a[href], button")?.focus();
  if (view.reveal) reveal(document.querySelector(view.reveal));
}
function reveal(found) {
  view.reveal = null;
  found?.scrollIntoView({ block: "center" });
  found?.focus();
}
function widest() {
  const sums = new Map();
  for (const x of all("host")) { const s = sums.get(x.region) || { columns: 0, hosts: 0 }; s.hosts += 1; for (const b of x.blocks) s.columns += b.columns; sums.set(x.region, s); }
  return [...sums.values()].sort((a, b) => b.columns - a.columns)[0] || { columns: 14, hosts: 4 };
}
const find = () => open({ kind: "find" });
function top(name) {
  const meta = get("meta/moxwell") || { mode: "" };
  const tab = (p) => h("a", { key: p.name, href: `/${p.name}`, "aria-current": shows(p, name) ? "page" : null }, p.label, p.counts && all(p.counts).length > 0 && h("b", {}, all(p.counts).length));
  return h("header", { class: "top", key: "top" }, h("a", { class: "brand", href: "/" }, brand(), "Moxwell"),
    h("nav", { class: "tabs", "aria-label": "Pages" }, PAGES.map(tab)),
    h("span", { class: "grow" }),
    h("button", { class: "find", onclick: find }, icon("find"), h("span", {}, "Find anything by name or address"), h("kbd", {}, "/")),
    h("span", { class: `live ${isLive() ? "" : "lost"}` }, h("i"), h("b", {}, meta.mode), state.scrub ? `as of ${clock(state.scrub)}` : isLive() ? (meta.mode === "lab" ? "simulated, live" : "live") : `as of ${state.at ? clock(state.at) : "?"}`),
    h("button", { class: "btn icon", onclick: toggle, "aria-label": "Light or dark", title: "Light or dark" }, icon("theme")),
    h("button", { class: "btn icon", onclick: signOut, "aria-label": "Sign out", title: "Sign out" }, icon("exit")));
}
async function signOut() {
  await fetch("/api/sign-out", { method: "POST" });
  location.assign("/");
}
// Says that what is shown is not the present.
function banner() {
  if (state.scrub) return h("div", { class: "banner waiting", key: "banner", role: "status" }, icon("waiting"), h("span", {}, `This is the past: ${clock(state.scrub)}.`), h("button", { class: "btn", onclick: () => scrub(null) }, "Back to live"));
  if (isLive()) return null;
  const ago = span((Date.now() - Date.parse(state.at)) / 1000);
  const text = state.connected ? "Moxwell answers, but has not looked at its regions and objects for a while." : "Moxwell does not answer. The page reconnects by itself.";
  return h("div", { class: "banner unknown", key: "banner", role: "status" }, icon("unknown"), h("span", {}, `${text} This is the state of ${clock(state.at)}, ${ago} ago.`), !state.connected && h("code", {}, localize("moxwell up")));
}
function readout(name, key) {
  const [space, called] = key.split("/");
  const command = name === "cluster" || name === "machine" ? `moxwell explain ${name} ${called} -n ${space}` : null;
  const guests = all("guest");
  const ours = guests.filter((g) => g.ours).length;
  const idle = command ? ["The same in a terminal: ", h("code", {}, localize(command))] : `${plural(guests.length, "guest")}: ${ours} in ${plural(all("cluster").length, "cluster")}, ${guests.length - ours} not ours. Point at a guest or use the arrow keys to see its details here.`;
  const k = (keys, word) => h("span", { key: word }, keys.map((x) => h("kbd", { key: x }, x)), " ", word);
  return h("footer", { class: `read ${view.say ? "on" : ""}`, key: "read" }, h("span", { class: "say", id: "say" }, view.say || idle), h("span", { class: "keys" }, k(["←", "↑", "↓", "→"], "guests"), k(["[", "]"], "time"), k(["l"], "live"), k(["?"], "keys")));
}
function nav(name) {
  const tab = (p) => h("a", { key: p.name, href: `/${p.name}`, "aria-current": shows(p, name) ? "page" : null }, icon(p.icon), p.label);
  return h("nav", { class: "nav", key: "nav", "aria-label": "Pages" }, PAGES.map(tab), h("button", { key: "find", onclick: find }, icon("find"), "Find"));
}
const SHEETS = {
  commands: (s) => [s.title, [h("header", {}, h("h2", {}, s.title), h("span", { class: "sub" }, "commands to copy")), list(s.rows)]],
  find: () => ["Find", results()],
  keys: () => ["Keys", [h("header", {}, h("h2", {}, "Keys")), h("dl", {}, help().flatMap(([k, word]) => [h("dt", { key: k }, k.split(" ").map((x) => h("kbd", { key: x }, x))), h("dd", { key: word }, word)]))]],
  yaml: (s) => [s.title, [h("header", {}, h("h2", {}, s.title)), h("pre", { class: "yaml", tabindex: 0 }, s.text)]],
};
function sheet() {
  if (!view.sheet) return null;
  const [label, body] = SHEETS[view.sheet.kind](view.sheet);
  return h("div", { class: "sheet", key: "sheet", role: "dialog", "aria-modal": "true", "aria-label": label, onclick: (e) => { if (e.target.classList.contains("sheet")) close(); } },
    h("div", { class: "card" }, body, view.sheet.kind !== "find" && h("p", { class: "close" }, h("button", { class: "btn", onclick: close }, "Close"))));
}
function results() {
  const { hits, more } = found();
  return [h("input", { placeholder: "Cluster, machine, host, guest, volume, address", "aria-label": "Find", value: view.query, oninput: (e) => { view.query = e.target.value; view.pick = 0; paint(true); } }),
    h("ol", {}, hits.map((r, i) => h("li", { key: r.kind + r.href + r.name }, h("a", { href: r.href, "data-reveal": r.reveal || null, "data-on": i === view.pick ? "" : null }, square(r.cluster && get(`cluster/${r.cluster}`)), h("b", {}, r.name), h("span", { class: "sub" }, r.sub))))),
    more > 0 && h("p", { class: "sub" }, `${more} more`), view.query && !hits.length && h("p", { class: "sub" }, "Nothing found.")];
}

function point(event) {
  const said = event.target.closest?.("[data-say]");
  const lit = event.target.closest?.("[data-guest]")?.dataset.guest || null;
  const say = said ? said.dataset.say : null;
  if (say !== view.say || lit !== view.lit) { Object.assign(view, { say, lit }); paint(true); }
}
choose();
document.addEventListener("keydown", onKey);
document.addEventListener("pointerover", point);
document.addEventListener("focusin", point);
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href^='/'], tr[data-href]");
  if (!link || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  go(link.dataset.href || link.getAttribute("href"), link.dataset.reveal);
});
window.addEventListener("popstate", () => paint(true));
window.addEventListener("resize", () => paint(true));
onPaint(draw);
setInterval(() => { watch(); if (!state.scrub) paint(); }, 1000);
const at = new URLSearchParams(location.search).get("at");
connect();
if (at) scrub(at);
draw();
