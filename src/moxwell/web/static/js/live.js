// The records and their changes: one event stream, changes by key, at most one paint a second.
const QUIET = 40000; // the server sends something every 15 seconds
const OLD = 60000; // what was looked at longer ago is not live any more
const listeners = new Set();
export const state = { id: "", at: null, since: null, records: new Map(), connected: false, scrub: null };
let kinds = new Map(); // kind -> records, made when they are asked for
let pending = false;
let lastPaint = 0;
let heard = 0;
let source = null;

export function onPaint(listener) { listeners.add(listener); }

export function paint(soon = false) {
  if (pending && !soon) return;
  clearTimeout(pending);
  const wait = soon ? 0 : Math.max(0, lastPaint + 1000 - performance.now());
  pending = setTimeout(() => { pending = false; lastPaint = performance.now(); listeners.forEach((l) => l()); }, wait);
}

function replaceAll(data) {
  const records = new Map(Object.entries(data.records).map(([key, record]) => [key, { key, ...record }]));
  Object.assign(state, { at: data.at, since: data.since, records });
  kinds = new Map();
}

function change(data) {
  for (const key of data.removed) state.records.delete(key);
  for (const [key, record] of Object.entries(data.put)) state.records.set(key, { key, ...record });
  for (const key of [...data.removed, ...Object.keys(data.put)]) kinds.delete(kindOf(key));
  state.at = data.at;
}

export function connect() {
  source = new EventSource(`/api/stream?after=${state.id}`);
  const on = (name, apply) => source.addEventListener(name, (event) => {
    heard = performance.now();
    if (state.scrub) return; // the past is shown; live again begins with all records
    const first = !state.records.size;
    apply(JSON.parse(event.data));
    state.id = event.lastEventId;
    paint(first);
  });
  on("snapshot", replaceAll);
  on("change", change);
  on("unchanged", (data) => { state.at = data.at; });
  source.onopen = () => { heard = performance.now(); state.connected = true; paint(true); };
  source.onerror = () => {
    disconnected();
    if (source.readyState === EventSource.CLOSED) again();
  };
}
function disconnected() {
  if (state.connected) { state.connected = false; paint(true); }
}
async function again() {
  source.close();
  const answer = await fetch("/api/session").catch(() => null);
  if (answer?.status === 401) location.reload(); // the session has ended: the page says how to sign in
  else setTimeout(connect, 2000);
}
// A connection that was cut silently, as by a sleeping laptop, is opened again.
export function watch() {
  if (!state.connected || performance.now() - heard < QUIET) return;
  source.close();
  disconnected();
  connect();
}

export async function scrub(at) {
  state.scrub = at;
  const answer = await fetch(`/api/state${at ? `?at=${encodeURIComponent(at)}` : ""}`).catch(() => null);
  if (!answer?.ok) return paint(true);
  const data = await answer.json();
  if (state.scrub === at) { replaceAll(data); state.id = ""; } // ignore the answer to an earlier request
  if (!at) { source.close(); connect(); }
  return paint(true);
}

const kindOf = (key) => key.slice(0, key.indexOf("/"));
export const get = (key) => state.records.get(key);
// The records of a kind; the array is the caller's own.
export function all(kind) {
  if (!kinds.has(kind)) kinds.set(kind, [...state.records.values()].filter((r) => kindOf(r.key) === kind));
  return kinds.get(kind).slice();
}
// Whether the page shows the present: connected, and looked at a moment ago.
export const isLive = () => state.connected && !state.scrub && Date.now() - Date.parse(state.at || 0) < OLD;
// The time the page shows: now, the selected time in the past, or when it was last connected.
export const now = () => (state.scrub ? Date.parse(state.scrub) : state.connected || !state.at ? Date.now() : Date.parse(state.at));
export async function ask(action, query, body) {
  const sent = body && { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const answer = await fetch(`/api/do/${action}?${new URLSearchParams(query)}`, sent || undefined);
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}
