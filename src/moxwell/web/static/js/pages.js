// All pages: what the navigation of desktop and phone, the keys and the routes are made of.
// A page has a path, a label, an icon, the key after `g`, what it counts, and how it is drawn;
// `within` are the pages of single objects that belong to it.
import { clusters, cluster } from "./clusters.js";
import { estate } from "./estate.js";
import { machine, machines } from "./machines.js";
import { moves } from "./moves.js";
import { nodePools } from "./node_pools.js";
import { volumes } from "./volumes.js";

export const PAGES = [
  { name: "", label: "Estate", icon: "estate", key: "e", draw: estate },
  { name: "clusters", label: "Clusters", icon: "clusters", key: "c", counts: "cluster", draw: clusters, within: { cluster } },
  { name: "machines", label: "Machines", icon: "machines", key: "m", counts: "machine", draw: machines, within: { machine } },
  { name: "pools", label: "Pools", icon: "pools", key: "p", counts: "pool", draw: nodePools },
  { name: "volumes", label: "Volumes", icon: "volumes", key: "v", counts: "volume", draw: volumes },
  { name: "moves", label: "Moves", icon: "moves", key: "o", draw: moves },
];
export const ROUTES = Object.fromEntries(PAGES.flatMap((p) => [[p.name, p.draw], ...Object.entries(p.within || {})]));
export const shows = (p, name) => p.name === name || name in (p.within || {});
