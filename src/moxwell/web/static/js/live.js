// The records and their changes: one event stream, changes by key, at most one paint a second.
const listeners = new Set();
export const state = { number: -1, at: null, since: null, records: new Map(), connected: false, scrub: null, skew: 0 };
let pending = false;
let lastPaint = 0;

export function onPaint(listener) { listeners.add(listener); }

export function paint(soon = false) {
  if (pending) return;
  pending = true;
  const wait = soon ? 0 : Math.max(0, lastPaint + 1000 - performance.now());
  setTimeout(() => { pending = false; lastPaint = performance.now(); listeners.forEach((l) => l()); }, wait);
}

function replaceAll(data) {
  Object.assign(state, { number: data.number, at: data.at, since: data.since, records: new Map(Object.entries(data.records)) });
}

export function connect() {
  const source = new EventSource(`/api/stream?after=${state.number}`);
  source.addEventListener("snapshot", (e) => { if (!state.scrub) { replaceAll(JSON.parse(e.data)); paint(state.number < 2); } });
  source.addEventListener("change", (e) => {
    if (state.scrub) return;
    const data = JSON.parse(e.data);
    for (const key of data.removed) state.records.delete(key);
    for (const [key, record] of Object.entries(data.put)) state.records.set(key, record);
    Object.assign(state, { number: data.number, at: data.at });
    paint();
  });
  source.onopen = () => { state.connected = true; state.skew = 0; paint(true); };
  source.onerror = () => {
    if (state.connected) { state.connected = false; paint(true); }
    if (source.readyState === EventSource.CLOSED) { source.close(); setTimeout(connect, 2000); }
  };
}

export async function scrub(at) {
  state.scrub = at;
  const answer = await fetch(`/api/state${at ? `?at=${encodeURIComponent(at)}` : ""}`);
  if (!answer.ok) return paint(true);
  const data = await answer.json();
  if (state.scrub === at) replaceAll(data); // ignore the answer to an earlier request
  return paint(true);
}

export const get = (key) => state.records.get(key);
export function all(kind) {
  const prefix = `${kind}/`;
  const rows = [];
  for (const [key, record] of state.records) if (key.startsWith(prefix)) rows.push({ key, ...record });
  return rows;
}
// The time the page shows: now, or the selected time in the past.
export const now = () => (state.scrub ? Date.parse(state.scrub) : Date.now());
export async function ask(action, query, body) {
  const sent = body && { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const answer = await fetch(`/api/do/${action}?${new URLSearchParams(query)}`, sent || undefined);
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}
