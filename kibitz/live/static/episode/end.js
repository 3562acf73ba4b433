// The card at the end: the verdict, the turning point, another game with the same players.
import { ask, h, style, text } from "../dom.js";

await style(import.meta.url);

// `go(seq)` shows a moment
export function endCard(app, state, go) {
  const { adapter, about, game, players, caption } = state;
  const { head = caption, moment = null } = adapter.verdict?.(state) || {};
  const lines = h("div.lines");
  const say = () => lines.replaceChildren(...(adapter.verdict?.(state)?.lines || []).map((line) => text("p.small", line)));
  say();
  if (adapter.replayed && state.ended) ask(`/episodes/${state.id}/reference`).then(({ ok, data }) => { if (ok) { state.replayed = data.seats; say(); } });
  const trouble = h("div.trouble", { role: "alert" });
  const again = (swapped) => async ({ currentTarget: button }) => {
    button.disabled = true;
    const request = { game, players: swapped ? [...players].reverse() : players, options: about.options || {}, enable_tts: about.speech ?? true, adviser: swapped ? null : about.adviser ?? null };
    if (about.eval_pack_id) request.eval_pack_id = about.eval_pack_id;
    await (await app.need("pages/start"))?.launch(app, request, trouble);
    button.disabled = false;
  };
  const close = ({ currentTarget }) => { currentTarget.closest(".endcard").hidden = true; };
  return [h("button.ghost.close", { "aria-label": "Close", onclick: close }, "✕"), text("p.verdict", head), lines,
    moment && h("p.small", null, "Turning point: ", h("button.link", { onclick: () => go(moment.seq) }, text("span", moment.text))),
    h("div.row", null, h("button.primary", { onclick: again(false) }, "Rematch"), h("button", { onclick: again(true) }, "Swap sides")), trouble].filter(Boolean);
}
