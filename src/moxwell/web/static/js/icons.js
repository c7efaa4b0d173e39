// Icons of states: the shape tells the state, the colour repeats it.
import { h } from "./dom.js";

const line = { fill: "none", stroke: "currentColor", "stroke-width": "1.6", "stroke-linecap": "round", "stroke-linejoin": "round" };
const p = (d, more) => h("path", { d, ...line, ...more });
const SHAPES = {
  check: () => p("M3 8.5l3.2 3.2L13 5"),
  creating: () => h("circle", { cx: 8, cy: 8, r: 5.6, ...line, "stroke-dasharray": "2 2.4" }),
  moving: () => [h("circle", { cx: 8, cy: 8, r: 5.6, ...line }), h("path", { d: "M8 2.4a5.6 5.6 0 0 0 0 11.2z", fill: "currentColor" })],
  attaching: () => [p("M3 4.5c0-1 2.2-1.8 5-1.8s5 .8 5 1.8v7c0 1-2.2 1.8-5 1.8s-5-.8-5-1.8z"), p("M8 6.5v4M6 8.5h4")],
  deleting: () => p("M2.5 8h10M8.8 4.2L12.6 8l-3.8 3.8"),
  waiting: () => p("M4 2.5h8M4 13.5h8M5 2.5c0 3 2.2 4 3 5.5.8-1.5 3-2.5 3-5.5M5 13.5c0-3 2.2-4 3-5.5.8 1.5 3 2.5 3 5.5"),
  unknown: () => [h("circle", { cx: 8, cy: 8, r: 5.8, ...line }), p("M6.3 6.3c.2-2 3.6-1.8 3.3.2-.2 1-1.6 1.1-1.6 2.3"), h("circle", { cx: 8, cy: 11.2, r: .8, fill: "currentColor" })],
  trouble: () => [h("path", { d: "M8 1.8L15 14H1z", fill: "currentColor" }), h("path", { d: "M8 6.2v3.6", stroke: "var(--surface)", "stroke-width": "1.6" }), h("circle", { cx: 8, cy: 11.8, r: .9, fill: "var(--surface)" })],
  cross: () => p("M4 4l8 8M12 4l-8 8"),
  open: () => h("circle", { cx: 8, cy: 8, r: 5.2, ...line }),
  find: () => [h("circle", { cx: 7, cy: 7, r: 4.2, ...line }), p("M10.3 10.3L14 14")],
  theme: () => [h("circle", { cx: 8, cy: 8, r: 6, ...line }), h("path", { d: "M8 2a6 6 0 0 1 0 12z", fill: "currentColor" })],
  estate: () => [h("rect", { x: 2, y: 2, width: 12, height: 12, rx: 2, ...line }), p("M8 2v12M8 8h6")],
  clusters: () => [h("circle", { cx: 8, cy: 4, r: 2, ...line }), h("circle", { cx: 4, cy: 11.5, r: 2, ...line }), h("circle", { cx: 12, cy: 11.5, r: 2, ...line })],
  machines: () => [h("rect", { x: 2, y: 2.5, width: 12, height: 4.5, rx: 1, ...line }), h("rect", { x: 2, y: 9, width: 12, height: 4.5, rx: 1, ...line }), p("M4.6 4.8h.1M4.6 11.3h.1")],
  volumes: () => [p("M3 4.2c0-1 2.2-1.7 5-1.7s5 .7 5 1.7v7.6c0 1-2.2 1.7-5 1.7s-5-.7-5-1.7z"), p("M3 4.4c0 1 2.2 1.7 5 1.7s5-.7 5-1.7M3 8c0 1 2.2 1.7 5 1.7S13 9 13 8")],
  pools: () => [h("rect", { x: 2, y: 8.5, width: 3.4, height: 5, rx: .8, ...line }), h("rect", { x: 6.3, y: 5.5, width: 3.4, height: 8, rx: .8, ...line }), h("rect", { x: 10.6, y: 2.5, width: 3.4, height: 11, rx: .8, ...line })],
  back: () => p("M10 3L5 8l5 5"),
  on: () => p("M6 3l5 5-5 5"),
  moves: () => p("M2 4h12M2 8h7M2 12h9"),
  exit: () => [p("M9 2.5H3.5v11H9"), p("M7 8h7M11.2 5.2L14 8l-2.8 2.8")],
};
const COLOUR = { creating: "moving", moving: "moving", attaching: "moving", deleting: "moving", waiting: "waiting", unknown: "unknown", trouble: "trouble", check: "ok" };

export function icon(name, size = "") {
  const shape = SHAPES[name];
  return shape ? h("svg", { class: `i ${size} ${COLOUR[name] || ""}`, viewBox: "0 0 16 16", "aria-hidden": "true" }, shape()) : null;
}
export function brand() {
  return h("svg", { viewBox: "0 0 20 20", "aria-hidden": "true" },
    h("rect", { x: 1, y: 1, width: 18, height: 18, rx: 4, fill: "none", stroke: "currentColor", "stroke-width": 2 }),
    h("rect", { x: 5, y: 5, width: 4, height: 10, rx: 1, fill: "currentColor" }), h("rect", { x: 11, y: 5, width: 4, height: 4, rx: 1, fill: "currentColor" }),
    h("rect", { x: 11, y: 11, width: 4, height: 4, rx: 1, fill: "none", stroke: "currentColor", "stroke-width": 1.2 }));
}
// The square that stands for a cluster: hue and pattern.
export function square(cluster) {
  return cluster ? h("span", { class: `sq h${cluster.hue} p${cluster.pattern}`, "aria-hidden": "true" }) : null;
}
export const isReady = (s) => !s || s === "ready";
export const glyph = (s, size) => icon(isReady(s) ? "check" : s, size);
