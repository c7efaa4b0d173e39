// Moves: everything under way and everything done since start. Volumes: every disk a claim asked for.
import { h } from "./dom.js";
import { all, get, state } from "./live.js";
import { clock, gib, since } from "./words.js";
import { glyph, square } from "./icons.js";
import { doneRow, events, underWay } from "./feed.js";

export function moves() {
  const now = all("move");
  return h("div", { class: "scroll main" }, h("div", { class: "page" }, h("div", { class: "title" }, h("h1", {}, "Moves"), h("span", { class: "sub" }, state.since ? `since ${clock(state.since)}` : "")),
    h("div", { class: "two" }, h("div", { class: "card" }, h("header", {}, h("h2", {}, `Under way, ${now.length}`)), now.length ? now.map(underWay) : h("p", { class: "dim" }, "Nothing moves. That is good.")),
      h("div", { class: "card" }, h("header", {}, h("h2", {}, "Done")), events().map(doneRow)))));
}
export function volumes() {
  const rows = all("volume").sort((a, b) => a.name.localeCompare(b.name));
  return h("div", { class: "scroll main" }, h("div", { class: "page" }, h("div", { class: "title" }, h("h1", {}, "Volumes")),
    h("div", { class: "card" }, rows.length === 0 ? h("p", { class: "dim" }, "No volumes yet. A PersistentVolumeClaim of a Proxmox StorageClass makes the first one.") :
      h("table", {}, h("thead", {}, h("tr", {}, ["", "Volume", "Cluster", "Claim", "Storage", "Size", "Guest", "State", "For"].map((t) => h("th", { key: t }, t)))), h("tbody", {}, rows.map((v) => {
        const c = get(`cluster/${v.cluster}`);
        return h("tr", { key: v.key }, h("td", { class: "icon" }, glyph(v.state)), h("td", {}, h("b", {}, v.name)), h("td", {}, c && [square(c), " ", c.name]), h("td", {}, v.claim), h("td", {}, v.storage), h("td", {}, `${gib(v.size_mib)} GiB`), h("td", {}, v.guest || ""), h("td", { class: "wide dim" }, v.sentence), h("td", { class: "num" }, since(v.since)));
      }))))));
}
