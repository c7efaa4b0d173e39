// Opens and closes the dialog; the focus returns to where it was.
import { paint } from "./live.js";
import { view } from "./view.js";

let before = null;

export function open(sheet) {
  before = document.activeElement;
  Object.assign(view, { sheet, query: "", pick: 0 });
  paint(true);
}
export function close() {
  document.activeElement?.blur?.(); // keys that follow at once are no input of the dialog
  if (!view.sheet) return undefined;
  view.sheet = null;
  paint(true);
  return before?.focus?.();
}
