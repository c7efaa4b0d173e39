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
export function clock(iso, seconds = true) {
  const d = new Date(iso);
  return `${two(d.getHours())}:${two(d.getMinutes())}${seconds ? `:${two(d.getSeconds())}` : ""}`;
}
export const gib = (mib) => (mib % 1024 === 0 ? mib / 1024 : (mib / 1024).toFixed(1));
export const percent = (part) => (part === null || part === undefined ? "?" : `${Math.round(part * 100)} %`);
export const plural = (n, one, many) => `${n} ${n === 1 ? one : many || `${one}s`}`;
export const tail = (key) => key.slice(key.lastIndexOf("/") + 1);
