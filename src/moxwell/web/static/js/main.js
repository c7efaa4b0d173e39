// The page: a frame, a route, and one paint a second at the most. Durations tick here; nothing polls.
import { h, render } from "./dom.js";
import { all, connect, get, onPaint, paint, scrub, state } from "./live.js";
import { brand, icon, square } from "./icons.js";
import { clock, plural, span } from "./format.js";
import { estate } from "./estate.js";
import { cluster, clusters } from "./clusters.js";
import { machine, machines } from "./machines.js";
import { moves, volumes } from "./moves.js";
import { HELP, found, onKey, theme } from "./keys.js";
import { list } from "./commands.js";
import { measure, view } from "./view.js";

const ROUTES = { "": estate, clusters, cluster, machines, machine, volumes, moves };

export const page = () => { const [, name, ...rest] = location.pathname.split("/"); return [name, decodeURIComponent(rest.join("/"))]; };
export function go(path) {
  if (path !== location.pathname) history.pushState(null, "", path);
  view.filter = "";
  paint(true);
}

function draw() {
  const [name, key] = page();
  const body = (ROUTES[name] || estate)(key);
  measure(widest(), !all("cluster").length);
  render(document.getElementById("root"), h("div", { class: `frame ${state.scrub ? "scrubbed" : ""}` }, top(name), state.number < 0 ? h("p", { class: "boot" }, "Waiting for the first data from Moxwell.") : body, readout(name, key), nav(name), sheet()));
  document.querySelector(".sheet input")?.focus();
}
function widest() {
  const sums = new Map();
  for (const x of all("host")) { const s = sums.get(x.region) || { columns: 0, hosts: 0 }; s.hosts += 1; for (const b of x.blocks) s.columns += b.columns; sums.set(x.region, s); }
  return [...sums.values()].sort((a, b) => b.columns - a.columns)[0] || { columns: 14, hosts: 4 };
}
function top(name) {
  const meta = get("meta/moxwell") || { mode: "" };
  const tab = (path, label, count, names) => h("a", { key: path, href: path, "aria-current": names.includes(name) ? "page" : null }, label, count !== null && h("b", {}, count));
  return h("header", { class: "top", key: "top" }, h("a", { class: "brand", href: "/" }, brand(), "Moxwell"),
    h("nav", { class: "tabs" }, tab("/", "Estate", null, [""]), tab("/clusters", "Clusters", all("cluster").length, ["clusters", "cluster"]), tab("/machines", "Machines", all("machine").length, ["machines", "machine"]), tab("/volumes", "Volumes", all("volume").length, ["volumes"]), tab("/moves", "Moves", null, ["moves"])),
    h("span", { class: "grow" }),
    h("button", { class: "find", onclick: () => { view.sheet = { kind: "find" }; view.query = ""; view.pick = 0; paint(true); } }, icon("find"), h("span", {}, "Find guest, node, host, address"), h("kbd", {}, "/")),
    h("span", { class: `live ${state.connected ? "" : "lost"}` }, h("i"), h("b", {}, meta.mode), state.scrub ? `as of ${clock(state.scrub)}` : state.connected ? (meta.mode === "lab" ? "simulated, live" : "live") : `as of ${state.at ? clock(state.at) : "?"}`),
    h("button", { class: "btn icon", onclick: theme, "aria-label": "Light or dark" }, icon("theme")),
    h("button", { class: "btn icon", onclick: signOut, "aria-label": "Sign out" }, icon("exit")));
}
async function signOut() {
  await fetch("/api/sign-out", { method: "POST" });
  location.assign("/static/ended.html");
}
function readout(name, key) {
  const [space, called] = key.split("/");
  const command = name === "cluster" || name === "machine" ? `moxwell explain ${name} ${called} -n ${space}` : null;
  const guests = all("guest");
  const ours = guests.filter((g) => g.ours).length;
  const idle = command ? ["The same in a terminal: ", h("code", {}, command)] : `${plural(guests.length, "guest")}: ${ours} in ${plural(all("cluster").length, "cluster")}, ${guests.length - ours} not ours. Point at a guest or use the arrow keys to see its details here.`;
  const k = (keys, word) => h("span", { key: word }, keys.map((x) => h("kbd", { key: x }, x)), " ", word);
  return h("footer", { class: "read", key: "read" }, h("span", { class: "say", id: "say" }, view.say || idle), h("span", { class: "keys" }, k(["←", "↑", "↓", "→"], "guests"), k(["[", "]"], "time"), k(["l"], "live"), k(["?"], "keys")));
}
function nav(name) {
  const tab = (path, label, sign, names) => h("a", { key: path, href: path, "aria-current": names.includes(name) ? "page" : null }, icon(sign), label);
  return h("nav", { class: "nav", key: "nav" }, tab("/", "Estate", "estate", [""]), tab("/clusters", "Clusters", "clusters", ["clusters", "cluster", "machine"]), tab("/moves", "Moves", "moves", ["moves"]), h("button", { key: "f", onclick: () => { view.sheet = { kind: "find" }; paint(true); } }, icon("find"), "Find"));
}
function sheet() {
  const s = view.sheet;
  if (!s) return null;
  const body = s.kind === "commands" ? [h("header", {}, h("h2", {}, s.title), h("span", { class: "sub" }, "commands to copy")), list(s.rows)] : s.kind === "find" ? find() : s.kind === "keys" ? [h("header", {}, h("h2", {}, "Keys")), h("dl", {}, HELP.flatMap(([k, word]) => [h("dt", { key: k }, k.split(" ").map((x) => h("kbd", { key: x }, x))), h("dd", { key: word }, word)]))] : [h("header", {}, h("h2", {}, s.title)), h("pre", { class: "yaml" }, s.text)];
  return h("div", { class: "sheet", key: "sheet", role: "dialog", onclick: (e) => { if (e.target.classList.contains("sheet")) { view.sheet = null; paint(true); } } }, h("div", { class: "card" }, body));
}
function find() {
  const hits = found();
  return [h("input", { placeholder: "Guest, node, host, address", value: view.query, oninput: (e) => { view.query = e.target.value; view.pick = 0; paint(true); } }),
    h("ol", {}, hits.map((r, i) => h("li", { key: r.href + r.name }, h("a", { href: r.href, "data-on": i === view.pick ? "" : null }, square(r.cluster && get(`cluster/${r.cluster}`)), h("b", {}, r.name), h("span", { class: "sub" }, r.sub))))), view.query && !hits.length && h("p", { class: "sub" }, "Nothing found.")];
}

function point(event) {
  const said = event.target.closest?.("[data-say]");
  const lit = event.target.closest?.("[data-guest]")?.dataset.guest || null;
  const say = said ? said.dataset.say : null;
  if (say !== view.say || lit !== view.lit) { Object.assign(view, { say, lit }); paint(true); }
}
document.documentElement.dataset.theme = localStorage.getItem("theme") || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
document.addEventListener("keydown", onKey);
document.addEventListener("pointerover", point);
document.addEventListener("focusin", point);
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href^='/'], tr[data-href]");
  if (!link || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  if (view.sheet) view.sheet = null;
  go(link.dataset.href || link.getAttribute("href"));
});
window.addEventListener("popstate", () => paint(true));
window.addEventListener("resize", () => paint(true));
onPaint(draw);
setInterval(() => { if (!state.scrub) paint(); }, 1000);
const at = new URLSearchParams(location.search).get("at");
connect();
if (at) scrub(at);
draw();
