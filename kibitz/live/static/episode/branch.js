// Continues from the position on the page with other players.
import { ask, h, many, put } from "../dom.js";
import { openDialog } from "../parts/dialog.js";
import { field } from "../parts/form.js";
import { goTo } from "./people.js";

export async function openBranch(app, timeline) {
  const { shown } = timeline;
  const { data } = await ask("/custom/presets");
  const game = (data.games || {})[shown.game] || { players: [] };
  const option = (p, seat) => h("option", { value: p.name, selected: p.name === shown.players[seat] }, p.title || p.name);
  const picks = [0, 1].map((seat) => h("select", null, game.players.filter((p) => p.usable).map((p) => option(p, seat))));
  const error = h("p.error", { role: "alert" });
  const turn = shown.turn + 1;
  const unit = shown.adapter.unit;
  const start = async (dialog, button) => {
    button.disabled = true;
    const answer = await ask(`/episodes/${timeline.id}/branch`, { turn, players: picks.map((pick) => pick.value) });
    button.disabled = false;
    if (!answer.ok) return put(error, answer.error);
    dialog.close();
    return goTo(app, answer.data);
  };
  openDialog("Branch from here", "small", (dialog) => [
    h("h2", null, "Branch from here"), h("p.dim", null, `The branch keeps the first ${turn === 1 ? unit : many(turn, unit)}; these players continue from there.`),
    ...picks.map((pick, seat) => field(`Player in seat ${seat}`, pick)), error,
    h("div.row", null, h("button.primary", { onclick: (event) => start(dialog, event.currentTarget) }, "Play on"), h("button", { onclick: () => dialog.close() }, "Cancel")),
  ]);
}
