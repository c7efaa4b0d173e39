// Which page is shown: the first part of the path, and the key of an object.
import { paint } from "./live.js";
import { view } from "./view.js";

export const page = () => {
  const [, name, ...rest] = location.pathname.split("/");
  return [name, decodeURIComponent(rest.join("/"))];
};
// Opens a page; `reveal` selects what is scrolled to and focused there.
export function go(path, reveal = null) {
  if (path !== location.pathname) history.pushState(null, "", path);
  Object.assign(view, { filter: "", say: null, lit: null, sheet: null, reveal });
  paint(true);
}
