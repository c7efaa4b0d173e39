// Moves: machines in progress, what waits or is unknown, and events since the start.
import { h } from "./dom.js";
import { state } from "./live.js";
import { clock } from "./format.js";
import { doneRow, events, inProgressRow, movesNow, times } from "./feed.js";
import { card, page } from "./table.js";

export function moves() {
  const [moving, held] = movesNow();
  const done = events();
  return page("Moves", [state.since ? `since ${clock(state.since)} ` : "", times()],
    h("div", { class: "two" },
      h("div", { class: "stack" }, card(`In progress, ${moving.length}`, null, moving.length ? moving.map(inProgressRow) : h("p", { class: "dim" }, "Nothing is in progress.")),
        held.length > 0 && card(`Waiting or unknown, ${held.length}`, null, held.map(inProgressRow))),
      card("Done", null, done.length ? done.map(doneRow) : h("p", { class: "dim" }, "Nothing has happened since Moxwell started."))));
}
