// Moves: machines in progress and events since the start. Volumes: every PersistentVolume and unbound claim.
import { h } from "./dom.js";
import { all, get, state } from "./live.js";
import { clock, gib, plural, since } from "./format.js";
import { glyph, square } from "./icons.js";
import { doneRow, events, inProgressRow } from "./feed.js";

export function moves() {
  const now = all("move");
  return h("div", { class: "scroll main" }, h("div", { class: "page" }, h("div", { class: "title" }, h("h1", {}, "Moves"), h("span", { class: "sub" }, state.since ? `since ${clock(state.since)}` : "")),
    h("div", { class: "two" }, h("div", { class: "card" }, h("header", {}, h("h2", {}, `In progress, ${now.length}`)), now.length ? now.map(inProgressRow) : h("p", { class: "dim" }, "Nothing is in progress.")),
      h("div", { class: "card" }, h("header", {}, h("h2", {}, "Done")), events().map(doneRow)))));
}
export function volumes() {
  const rows = all("volume").sort((a, b) => (a.state === "ready" ? 1 : 0) - (b.state === "ready" ? 1 : 0) || a.claim.localeCompare(b.claim));
  const total = rows.reduce((n, v) => n + v.size_mib, 0);
  return h("div", { class: "scroll main" }, h("div", { class: "page" }, h("div", { class: "title" }, h("h1", {}, "Volumes"), h("span", { class: "sub" }, `${plural(rows.length, "volume")}, ${gib(total)} GiB`)), stores(rows),
    h("div", { class: "card" }, rows.length === 0 ? h("p", { class: "dim" }, "No volumes yet. A PersistentVolumeClaim of a Proxmox StorageClass creates the first one.") :
      h("table", {}, h("thead", {}, h("tr", {}, ["", "Claim", "Cluster", "Size", "Storage", "Volume", "State", "For"].map((t) => h("th", { key: t, class: t === "Size" || t === "For" ? "num" : "" }, t)))), h("tbody", {}, rows.map((v) => {
        const c = get(`cluster/${v.cluster}`);
        return h("tr", { key: v.key }, h("td", { class: "icon" }, glyph(v.state)), h("td", { class: "one" }, h("b", {}, v.claim || v.name)), h("td", { class: "one" }, c && [square(c), " ", h("a", { href: `/cluster/${v.cluster}` }, c.name)]), h("td", { class: "num one" }, `${gib(v.size_mib)} GiB`), h("td", { class: "one" }, v.storage), h("td", { class: "one faint" }, v.name.length > 16 ? `${v.name.slice(0, 12)}…` : v.name), h("td", { class: "wide dim" }, v.guest ? [v.sentence.slice(0, v.sentence.length - v.guest.length), h("a", { href: `/machine/${v.cluster.split("/")[0]}/${v.guest}` }, v.guest)] : v.sentence), h("td", { class: "num" }, since(v.since)));
      }))))));
}
// One bar per storage: grey is used, each volume of a cluster has its colour.
function stores(rows) {
  const every = all("store").sort((a, b) => a.name.localeCompare(b.name));
  const most = Math.max(1, ...every.map((s) => s.total_mib));
  const pc = (part, whole) => `${Math.max(0.4, (100 * part) / Math.max(1, whole)).toFixed(2)}%`;
  return h("div", { class: "card" }, h("header", {}, h("h2", {}, "Storages"), h("span", { class: "sub" }, "width is size; grey is used, colours are volumes of clusters")),
    h("table", { class: "stores" }, h("tbody", {}, every.map((s) => {
      const own = rows.filter((v) => v.storage === s.name);
      const held = own.reduce((n, v) => n + v.size_mib, 0);
      return h("tr", { key: s.key }, h("td", { class: "one" }, h("b", {}, s.name)), h("td", { class: "wide" }, h("div", { class: "store", style: { width: pc(s.total_mib, most) } },
        own.map((v) => { const c = get(`cluster/${v.cluster}`); return h("i", { key: v.key, class: c ? `h${c.hue}` : "", style: { width: pc(v.size_mib, s.total_mib) }, "data-say": `${v.claim}: ${gib(v.size_mib)} GiB. ${v.sentence}` }); }),
        h("u", { style: { width: pc(Math.max(0, s.used_mib - held), s.total_mib) } }))),
        h("td", { class: "num one" }, plural(own.length, "volume")), h("td", { class: "num one dim" }, `${gib(Math.round((s.total_mib - s.used_mib) / 1024) * 1024)} of ${gib(Math.round(s.total_mib / 1024) * 1024)} GiB free`));
    }))));
}
