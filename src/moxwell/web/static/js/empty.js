// The page without clusters: what to do first, and where machines would be placed.
import { h } from "./dom.js";
import { all, ask, get, paint } from "./live.js";
import { icon } from "./icons.js";
import { region } from "./estate.js";
import { command, localize } from "./commands.js";
import { view } from "./view.js";
import { plural } from "./format.js";

const CREATE = "moxwell cluster create demo --nodes 3";

export function emptyPage(regions, hosts) {
  const meta = get("meta/moxwell") || { mode: "lab", checks: [] };
  const lab = meta.mode === "lab";
  return h("div", { class: "scroll main" }, h("div", { class: "first" },
    h("div", {},
      h("h1", {}, lab ? "Your lab is up. It is empty." : "Moxwell is up. There is no cluster yet."),
      h("p", { class: "dim" }, `${plural(regions.length, lab ? "simulated region" : "region")}, ${plural(hosts.length, "host")}, no cluster yet. A first cluster takes about two minutes.`),
      h("ol", { class: "steps" },
        h("li", { class: "on" }, h("h2", {}, "Create a cluster"), h("p", { class: "dim" }, "Three workers, spread over the regions."), command(CREATE), h("button", { class: "btn", onclick: plan }, "See the plan first"), view.plan && h("pre", { class: "yaml" }, view.plan)),
        h("li", {}, h("h2", {}, "Watch it appear"), h("p", { class: "dim" }, "Guests appear in the hosts beside this as they are cloned and join.")),
        h("li", {}, h("h2", {}, "Use it"), command("moxwell cluster kubeconfig demo --file demo.kubeconfig"))),
      meta.checks.length > 0 && h("div", { class: "card" }, h("header", {}, h("h2", {}, "Start")), h("div", { class: "checks" }, meta.checks.map((c, i) => h("div", { key: i }, icon(c.ok ? "check" : "trouble"), c.text, h("span", { class: "right" }, c.seconds !== null ? `${c.seconds.toFixed(1)} s` : ""))))),
      lab && h("p", { class: "sub" }, "To use your own Proxmox: ", h("code", {}, localize("moxwell init")))),
    h("div", {}, regions.map((r) => region(r, hosts, all("guest"), false)))));
}
const DEMO = { apiVersion: "apps.cozystack.io/v1alpha1", kind: "Kubernetes", metadata: { name: "demo", namespace: "tenant-demo" }, spec: { nodeGroups: [{ name: "md0", replicas: 3, instanceType: "u1.large" }] } };
async function plan() {
  try {
    const part = (await ask("plan", {}, [DEMO])).parts[0];
    view.planned = part.machines.filter((m) => m.host);
    view.plan = part.text;
  } catch (error) { view.plan = String(error.message); }
  paint(true);
}
