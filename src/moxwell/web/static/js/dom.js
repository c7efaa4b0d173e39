// A small keyed renderer: pages are functions from state to a tree; only what differs touches the document.
const SVG = new Set(["svg", "path", "rect", "circle", "line", "text", "g", "use", "title"]);

export function h(tag, props, ...kids) {
  const flat = kids.flat(Infinity).filter((k) => k !== null && k !== undefined && k !== false);
  return { tag, props: props || {}, kids: flat.map((k) => (typeof k === "object" ? k : String(k))) };
}

const keyOf = (v) => (typeof v === "string" ? undefined : v.props.key);
const same = (a, b) => typeof a === typeof b && (typeof a === "string" || (a.tag === b.tag && keyOf(a) === keyOf(b)));

function create(v) {
  if (typeof v === "string") return document.createTextNode(v);
  const el = SVG.has(v.tag) ? document.createElementNS("http://www.w3.org/2000/svg", v.tag) : document.createElement(v.tag);
  assign(el, {}, v.props);
  for (const kid of v.kids) el.append(create(kid));
  el.v = v;
  return el;
}

function assign(el, old, props) {
  for (const name of Object.keys(old)) if (!(name in props)) put(el, name, null, old[name]);
  for (const [name, value] of Object.entries(props)) if (value !== old[name]) put(el, name, value, old[name]);
}

function put(el, name, value, before) {
  if (name === "key") return;
  if (name === "style") return styles(el, value || {}, before || {});
  if (name.startsWith("on")) { el[name] = value; return; }
  if (name === "value" && el.value !== value) { el.value = value ?? ""; return; }
  if (value === null || value === undefined || value === false) el.removeAttribute(name);
  else el.setAttribute(name, value === true ? "" : value);
}

function styles(el, now, before) {
  for (const name of Object.keys(before)) if (!(name in now)) el.style.removeProperty(name);
  for (const [name, value] of Object.entries(now)) if (before[name] !== value) el.style.setProperty(name, value);
}

function update(el, old, v) {
  if (typeof v === "string") { if (el.data !== v) el.data = v; return; }
  assign(el, old.props, v.props);
  kids(el, old.kids, v.kids);
  el.v = v;
}

function kids(el, old, now) {
  const nodes = [...el.childNodes];
  const byKey = new Map();
  old.forEach((v, i) => { if (keyOf(v) !== undefined) byKey.set(keyOf(v), i); });
  const used = new Set();
  let at = 0;
  now.forEach((v, i) => {
    let from = keyOf(v) !== undefined ? byKey.get(keyOf(v)) : nextPlain(old, used, at);
    if (from !== undefined && (used.has(from) || !same(old[from], v))) from = undefined;
    const node = from === undefined ? create(v) : nodes[from];
    if (from !== undefined) { used.add(from); update(node, old[from], v); at = from + 1; }
    if (el.childNodes[i] !== node) el.insertBefore(node, el.childNodes[i] || null);
  });
  nodes.forEach((node, i) => { if (!used.has(i)) node.remove(); });
}

function nextPlain(old, used, at) {
  for (let i = at; i < old.length; i++) if (!used.has(i) && keyOf(old[i]) === undefined) return i;
  return undefined;
}

export function render(root, v) {
  const first = root.firstElementChild;
  if (first && first.v && same(first.v, v)) update(first, first.v, v);
  else root.replaceChildren(create(v));
}
