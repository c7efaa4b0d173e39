// Tables of records. On a phone each row becomes a block whose cells carry their labels.
import { h } from "./dom.js";

// `heads` are [label, class]; a row is { key, href, class, cells }.
export function table(heads, rows, kind = "rows") {
  return h("table", { class: kind, role: "table" },
    h("thead", {}, h("tr", { role: "row" }, heads.map(([label, look], i) => h("th", { key: i, class: look || null, role: "columnheader", scope: "col" }, label)))),
    h("tbody", {}, rows.map((r) => h("tr", { key: r.key, class: r.class || null, role: "row", tabindex: r.href ? 0 : null, "data-href": r.href || null },
      r.cells.map((cell, i) => h("td", { key: i, class: heads[i][1] || null, role: "cell", "data-label": heads[i][0] || null }, cell))))));
}
export const page = (title, sub, ...body) => h("div", { class: "scroll main", key: title }, h("div", { class: "page" }, h("div", { class: "title" }, h("h1", {}, title), sub && h("span", { class: "sub" }, sub)), body));
export const card = (title, sub, ...body) => h("section", { class: "card" }, h("header", {}, h("h2", {}, title), sub && h("span", { class: "sub" }, sub)), body);
