// Volumes: every PersistentVolume and unbound claim, and every storage with what it holds.
import { h } from "./dom.js";
import { all, get } from "./live.js";
import { clock, gib, plural, since, size } from "./format.js";
import { glyph, square } from "./icons.js";
import { card, page, table } from "./table.js";

const HEADS = [["", "icon"], ["Claim", "name"], ["Cluster"], ["Size", "num"], ["Storage"], ["Volume", "faint"], ["State", "wide dim"], ["For", "num"]];
const settledLast = (a, b) => (a.state === "ready" ? 1 : 0) - (b.state === "ready" ? 1 : 0) || a.claim.localeCompare(b.claim, undefined, { numeric: true });

export function volumes() {
  const rows = all("volume").sort(settledLast);
  const total = rows.reduce((n, v) => n + v.size_mib, 0);
  return page("Volumes", `${plural(rows.length, "volume")}, ${size(total)}`,
    card("Volumes", "of all clusters; not settled first", rows.length ? table(HEADS, rows.map(volumeRow)) : h("p", { class: "dim" }, "No volumes yet. A PersistentVolumeClaim of a Proxmox StorageClass creates the first one.")),
    all("region").sort((a, b) => a.name.localeCompare(b.name)).map((r) => stores(r, rows)));
}
function volumeRow(v) {
  const c = get(`cluster/${v.cluster}`);
  const node = v.guest && h("a", { href: `/machine/${v.cluster.split("/")[0]}/${v.guest}` }, v.guest);
  const said = v.guest ? [v.sentence.slice(0, v.sentence.length - v.guest.length), node] : v.sentence;
  return { key: v.key, cells: [glyph(v.state), h("b", { tabindex: -1, "data-volume": v.key }, v.claim || v.name), c && h("span", {}, square(c), " ", h("a", { href: `/cluster/${v.cluster}` }, c.name)), `${gib(v.size_mib)} GiB`, v.storage,
    h("span", { title: v.name }, v.name.length > 16 ? `${v.name.slice(0, 12)}…` : v.name), h("span", {}, v.lost && `Unknown: region ${v.lost} does not answer. Last seen: `, said), since(v.since)] };
}

const STORES = [["", "icon"], ["Storage", "name"], ["Type"], ["Holds", "dim"], ["Used", "wide"], ["Volumes", "num"], ["Free", "num dim"]];
// One bar per storage: grey is used, each volume of a cluster has its colour.
function stores(r, volumes) {
  const every = all("store").filter((s) => s.region === r.name).sort((a, b) => (a.host ? 1 : 0) - (b.host ? 1 : 0) || a.storage.localeCompare(b.storage) || a.host.localeCompare(b.host, undefined, { numeric: true }));
  const most = Math.max(1, ...every.map((s) => s.total_mib));
  const sub = r.reachable ? "width is size, grey is used, colours are volumes of clusters" : `${r.name} does not answer; as of ${clock(r.since)}`;
  return h("div", { key: r.key }, card(`Storages of ${r.name}`, sub, every.length ? table(STORES, every.map((s) => storeRow(s, volumes.filter((v) => v.storage === s.name), most)), `rows stores ${r.reachable ? "" : "stale"}`) : h("p", { class: "dim" }, "No storage was seen since Moxwell started.")));
}
function storeRow(s, own, most) {
  const pc = (part, whole) => `${Math.max(0.4, (100 * part) / Math.max(1, whole)).toFixed(2)}%`;
  const colour = (v) => { const c = get(`cluster/${v.cluster}`); return h("i", { key: v.key, class: c ? `h${c.hue}` : "", style: { width: pc(v.size_mib, s.total_mib) }, title: `${v.claim}: ${gib(v.size_mib)} GiB. ${v.sentence}` }); };
  const where = s.host ? `on ${s.host}` : s.hosts > 1 ? `shared by ${plural(s.hosts, "host")}` : "shared";
  const bar = h("div", { class: "store", role: "img", "aria-label": `${size(s.used_mib)} of ${size(s.total_mib)} used`, style: { width: pc(s.total_mib, most) } }, own.map(colour), h("u", { style: { width: pc(Math.max(0, s.used_mib - s.volumes_mib), s.total_mib) } }));
  const free = s.state === "ready" || s.state === "waiting" ? `${size(s.total_mib - s.used_mib)} of ${size(s.total_mib)}` : s.sentence;
  return { key: s.key, cells: [glyph(s.state), h("span", {}, h("b", {}, s.storage), h("span", { class: "sub" }, ` ${where}${s.state === "waiting" ? `, ${s.sentence}` : ""}`)), s.type, s.content.join(", "), bar, s.volumes ? `${s.volumes}, ${size(s.volumes_mib)}` : "none", free] };
}
