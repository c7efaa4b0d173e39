// Formats numbers and times.
import { now } from "./live.js";

export function span(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "";
  const s = Math.max(0, Math.floor(seconds));
  if (s >= 172800) return `${Math.floor(s / 86400)} d`;
  if (s >= 3600) return `${Math.floor(s / 3600)}:${two(Math.floor(s / 60) % 60)}:${two(s % 60)}`;
  return `${Math.floor(s / 60)}:${two(s % 60)}`;
}
export const since = (iso) => (iso ? span((now() - Date.parse(iso)) / 1000) : "");
export const two = (n) => String(n).padStart(2, "0");
// The time of day; of another day also the date.
export function clock(iso, seconds = true) {
  const d = new Date(iso);
  const time = `${two(d.getHours())}:${two(d.getMinutes())}${seconds ? `:${two(d.getSeconds())}` : ""}`;
  const today = new Date(Date.now()).toDateString() === d.toDateString();
  return today ? time : `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${time}`;
}
export const gib = (mib) => (mib % 1024 === 0 ? mib / 1024 : (mib / 1024).toFixed(1));
// A size that is read at a glance: GiB, and TiB for what rounds to 1,024 GiB or more.
export const size = (mib) => (mib >= 1023.5 * 1024 ? `${+(mib / 1024 / 1024).toFixed(1)} TiB` : `${mib >= 10240 ? Math.round(mib / 1024) : +(mib / 1024).toFixed(1)} GiB`);
export const percent = (part) => (part === null || part === undefined ? "?" : `${Math.round(part * 100)} %`);
export const plural = (n, one, many) => `${n} ${n === 1 ? one : many || `${one}s`}`;
export const tail = (key) => key.slice(key.lastIndexOf("/") + 1);
