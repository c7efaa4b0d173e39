// Commands to copy: the page changes nothing itself.
import { h } from "./dom.js";
import { paint } from "./live.js";
import { view } from "./view.js";

export function commands(title, rows) {
  view.sheet = { kind: "commands", title, rows };
  paint(true);
}
export function command(text) {
  const done = view.copied === text;
  return h("div", { class: "cmd" }, h("code", {}, `$ ${text}`), h("button", { class: "btn", onclick: () => copy(text) }, done ? "Copied" : "Copy"));
}
async function copy(text) {
  await navigator.clipboard?.writeText(text);
  view.copied = text;
  paint(true);
}
export const list = (rows) => h("div", { class: "cmds" }, rows.flatMap(([say, text], i) => [say && h("p", { key: `s${i}`, class: "dim" }, say), h("div", { key: i }, command(text))]));
