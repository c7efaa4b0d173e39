// Search: what is called exactly so first, then what begins with it, then what contains it.
import { all } from "./live.js";
import { view } from "./view.js";

const MOST = 12;
const machineRow = (m) => ({ kind: "machine", href: `/machine/${m.key.slice(8)}`, cluster: m.cluster, name: m.name, sub: `machine, ${m.host ? `${m.region}/${m.host}` : "not placed"} ${m.address || ""}`, words: [m.name, m.address, m.vmid, m.group, m.host, `${m.region}/${m.host}`] });
const clusterRow = (c) => ({ kind: "cluster", href: `/cluster/${c.key.slice(8)}`, cluster: c.key.slice(8), name: c.name, sub: `cluster in ${c.namespace}`, words: [c.name, `${c.namespace}/${c.name}`, c.endpoint, c.namespace] });
const guestRow = (g) => ({ kind: "guest", href: "/", reveal: `[data-guest="${g.key}"]`, name: g.name, sub: `guest, not ours, ${g.region}/${g.host}`, words: [g.name, g.vmid, g.host] });
const hostRow = (x) => ({ kind: "host", href: "/", reveal: `[data-host="${x.key}"]`, name: `${x.region}/${x.name}`, sub: "host", words: [x.name, `${x.region}/${x.name}`, x.zone] });
const volumeRow = (v) => ({ kind: "volume", href: "/volumes", reveal: `[data-volume="${v.key}"]`, cluster: v.cluster, name: v.claim || v.name, sub: `volume, ${v.storage}`, words: [v.claim, (v.claim || "").split("/").pop(), v.name, v.disk] });
const storeRow = (s) => ({ kind: "storage", href: "/volumes", name: s.name, sub: `storage, ${s.type}`, words: [s.storage, s.name] });

// 0: exact, 1: begins with it, 2: a part of the name begins with it, 3: contains it.
export function rank(words, query) {
  let best = Infinity;
  words.forEach((word, i) => {
    const text = String(word ?? "").toLowerCase();
    const at = text.indexOf(query);
    if (at < 0 || !text) return;
    const part = at > 0 && /[^a-z0-9]/.test(text[at - 1]);
    best = Math.min(best, (text === query ? 0 : at === 0 ? 1 : part ? 2 : 3) + (i > 0 ? 0.1 : 0)); // the name counts more
  });
  return best;
}
const KINDS = ["cluster", "host", "machine", "guest", "volume", "storage"];
export function found() {
  const query = view.query.trim().toLowerCase();
  if (!query) return { hits: [], more: 0 };
  const rows = [...all("cluster").map(clusterRow), ...all("host").map(hostRow), ...all("machine").map(machineRow), ...all("guest").filter((g) => !g.machine).map(guestRow), ...all("volume").map(volumeRow), ...all("store").map(storeRow)];
  const hits = rows.map((r) => ({ ...r, rank: rank(r.words, query) })).filter((r) => r.rank < Infinity)
    .sort((a, b) => a.rank - b.rank || KINDS.indexOf(a.kind) - KINDS.indexOf(b.kind) || a.name.localeCompare(b.name, undefined, { numeric: true }));
  return { hits: hits.slice(0, MOST), more: Math.max(0, hits.length - MOST) };
}
