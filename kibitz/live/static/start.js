// The start panel: which game, who plays, and what is settled before the first turn.
import { ask, called, h, many, style, text, words } from "./dom.js";
import { episodes } from "./episodes.js";
import { openDialog } from "./dialog.js";
import { field } from "./form.js";
import { ago } from "./pages.js";

await style(import.meta.url);

const titled = (player) => (player.title || player.name).replace(/:(?=\S)/, ": ");

// one input for one option, by its JSON schema; options of other kinds are left at their defaults
function optionField(name, schema, value) {
  const kinds = [schema, ...(schema.anyOf || [])];
  const found = (type) => kinds.find((one) => one.type === type);
  const choices = kinds.map((one) => one.enum).find(Boolean);
  const number = found("integer") || found("number");
  let input = null;
  if (choices) input = h("select", { name }, choices.map((x) => h("option", { value: x, selected: x === value }, x)));
  else if (found("boolean")) {
    const third = found("null") ? [["", "drawn"]] : [];
    input = h("select", { name }, [...third, ["true", "yes"], ["false", "no"]].map(([v, text]) => h("option", { value: v, selected: v === String(value ?? "") }, text)));
  } else if (number && !schema.anyOf) input = h("input", { type: "number", name, value, min: number.minimum, max: number.maximum, step: number.type === "integer" ? 1 : "any" });
  if (!input) return null;
  input.read = () => (choices ? input.value : found("boolean") ? { true: true, false: false, "": null }[input.value] : Number(input.value));
  input.usual = value;
  return field(words(name).replace(/^./, (c) => c.toUpperCase()), input, schema.description);
}

function playerSelect(label, players, wanted) {
  const groups = Map.groupBy ? Map.groupBy(players, (p) => p.kind || "players") : new Map([["players", players]]);
  const option = (p) => h("option", { value: p.name, disabled: !p.usable, selected: p.name === wanted }, `${titled(p)}${p.usable ? "" : " – not available"}`);
  const select = h("select", [...groups].map(([kind, all]) => h("optgroup", { label: kind }, all.map(option))));
  return { select, node: field(label, select) };
}

export function startPanel(app, done) {
  const root = h("div.start", h("p.dim", "Looking who is here…"));
  const build = async () => {
    const { ok, data, error } = await ask("/custom/presets");
    if (!ok) return root.replaceChildren(h("p.error", { role: "alert" }, error));
    const names = Object.keys(data.games);
    let body = h("div");
    const pick = (name) => {
      const next = gamePanel(app, name, data.games[name], data.speech || {}, done);
      body.replaceWith(next);
      body = next;
    };
    const games = h("fieldset.pills.games", h("legend", "Game"), names.map((name, i) => h("label", h("input", { type: "radio", name: "game", value: name, checked: !i, onchange: () => pick(name) }), h("span", data.games[name].title || words(name)))));
    root.replaceChildren(games, body);
    return pick(names[0]);
  };
  build();
  return root;
}

function gamePanel(app, name, game, speech, done) {
  const usable = game.players.filter((p) => p.usable).map((p) => p.name);
  const wanted = (list) => list.find((x) => usable.includes(x));
  const own = playerSelect("Seat 0", game.players, wanted(["balanced", "captain:balanced", "bayes", "heuristic"]));
  const other = playerSelect("Seat 1", game.players, wanted(["aggressive", "captain:aggressive", "heuristic"]));
  const missing = game.players.filter((p) => !p.usable);
  const advisers = h("select", h("option", { value: "" }, "nobody"), game.players.filter((p) => p.usable && p.name !== "human").map((p) => h("option", { value: p.name }, titled(p))));
  const pack = h("select", (game.packs && game.packs.length ? game.packs : ["default"]).map((x) => h("option", { value: x }, x)));
  const properties = (game.options || {}).properties || {};
  const defaults = game.defaults || {};
  const { max_overs: overs, ...others } = properties;
  const length = overs && h("input", { type: "number", min: overs.minimum ?? 1, max: overs.maximum ?? 20, value: defaults.max_overs ?? 5 });
  const extra = Object.entries(others).map(([key, schema]) => optionField(key, schema, defaults[key] ?? schema.default)).filter(Boolean);
  const tts = h("input", { type: "checkbox", checked: Boolean(speech.speaker && speech.speaker !== "silence") });
  const open = h("input", { type: "checkbox" });
  const seed = h("input", { type: "number", min: 0, placeholder: "drawn" });
  const pace = h("select", [["", "the server's"], ["0", "at once"], ["0.5", "half a second a turn"], ["1.5", "a second and a half"], ["3", "three seconds"]].map(([v, text]) => h("option", { value: v }, text)));
  const trouble = h("div.trouble", { role: "alert" });
  const go = h("button.primary.wide", { type: "submit" }, "Start");

  const send = async (event) => {
    event.preventDefault();
    go.disabled = true;
    trouble.replaceChildren();
    const chosen = Object.fromEntries(extra.map((node) => node.querySelector("input, select")).filter((input) => input.read() !== input.usual && !(Number.isNaN(input.read()))).map((input) => [input.name, input.read()]));
    const request = {
      game: name, captain_preset: own.select.value, opponent_choice: other.select.value, eval_pack_id: pack.value, enable_tts: tts.checked,
      open: open.checked, adviser: advisers.value || null, options: chosen, seed: seed.value === "" ? null : Number(seed.value),
    };
    if (length) request.max_overs = Number(length.value);
    if (pace.value !== "") request.pace = Number(pace.value);
    const answer = await ask("/custom/start_episode", request);
    go.disabled = false;
    if (answer.status === 409) return trouble.replaceChildren(...busy(app, answer, () => send(event), done));
    if (!answer.ok) return trouble.replaceChildren(text("p.error", answer.error));
    if (answer.data.seat_token) sessionStorage.setItem(`seat:${answer.data.episode_id}`, answer.data.seat_token);
    if (done) done();
    return app.go(answer.data.url || `/e/${answer.data.episode_id}`);
  };
  const why = missing.length > 0 && h("details.missing", h("summary", `${many(missing.length, "player")} not available here`), h("dl", missing.flatMap((p) => [h("dt", titled(p)), text("dd", p.why || "not set up")])));
  const box = (input, text) => h("label.check", input, h("span", text));
  return h("form", { onsubmit: send }, h("div.pair", own.node, other.node), why,
    h("div.pair", length && field("Overs a side", length), field("Pack", pack), field("Adviser of seat 0", advisers), field("Pace", pace)),
    box(tts, h("span", "Spoken commentary ", h("small.dim", speech.speaker && speech.speaker !== "silence" ? `voice: ${speech.speaker}` : speech.why || ""))), box(open, "Open table: watchers see both sides' secrets at once"),
    h("details", h("summary", "More settings"), h("div.pair", field("Seed", seed), extra)), trouble, go);
}

// 409: what is in the way, and the two things one can do about it
function busy(app, { data, error }, again, done) {
  const now = data.current || {};
  const stop = async (event) => {
    event.currentTarget.disabled = true;
    await ask("/custom/stop_episode", { episode_id: now.episode_id });
    // it ends at its next turn
    for (let i = 0; i < 40; i++) {
      const { data: { running = [] } } = await ask("/custom/status");
      if (!running.some((one) => one.episode_id === now.episode_id)) break;
      await new Promise((done) => { setTimeout(done, 150); });
    }
    again();
  };
  return [text("p.error", error || "An episode is already running."), h("p", `${words(now.game || "An episode")}: ${(now.players || []).map((name) => called(name)).join(" v ")}${now.started_at ? `, started ${ago(now.started_at)}` : ""}.`),
    h("div.row", h("a.primary", { href: `/e/${now.episode_id}`, onclick: () => done && done() }, "Watch it"), h("button", { onclick: stop }, "Stop it and start mine"))];
}

// what the page without an episode shows
export function home(app) {
  return h("div.home",
    h("section.card.hero", { "aria-label": "Start an episode" }, h("h1", "Start an episode"), h("p.dim", "Nothing is being played. Choose a game and who sits down; choose a person to play yourself."), startPanel(app)),
    h("section.card", { "aria-label": "Recent episodes" }, h("h2", "Recent episodes"), episodes({ limit: 8 }), h("p", h("a", { href: "/lobby" }, "All episodes"))));
}

export function openStart(app) {
  openDialog("Start an episode", "", (dialog) => [
    h("div.row", h("h2", "Start an episode"), h("span.gap"), h("button.ghost", { "aria-label": "Close", onclick: () => dialog.close() }, "✕")),
    startPanel(app, () => dialog.close()),
  ]);
}
