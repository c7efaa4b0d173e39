// Commands to copy: the page changes nothing itself.
import { h } from "./dom.js";
import { get, paint } from "./live.js";
import { open } from "./sheet.js";
import { view } from "./view.js";

export const commands = (title, rows) => open({ kind: "commands", title, rows });

// A command as it must be typed here: with the path of the program and the name of the instance.
export function localize(text) {
  const { program = "moxwell", instance = "" } = get("meta/moxwell") || {};
  if (!text.startsWith("moxwell ")) return text;
  const [words, ...rest] = text.slice(8).split(" > ");
  const named = instance && !words.includes("--config") && words !== "init" ? ` --name ${instance}` : "";
  return [`${program} ${words}${named}`, ...rest].join(" > ");
}
export function command(given) {
  const text = localize(given);
  const done = view.copied === text;
  return h("div", { class: "cmd" }, h("code", {}, `$ ${text}`), h("button", { class: "btn", onclick: () => copy(text) }, done ? "Copied" : "Copy"));
}
async function copy(text) {
  await navigator.clipboard?.writeText(text);
  view.copied = text;
  paint(true);
}
export const list = (rows) => h("div", { class: "cmds" }, rows.flatMap(([say, text], i) => [say && h("p", { key: `s${i}`, class: "dim" }, say), h("div", { key: i }, command(text))]));
