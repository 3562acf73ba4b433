// The start panel: the game, its players and its options. The server describes every game; nothing here knows one.
import { ask, called, capital, h, many, mayStop, style, text, words } from "../dom.js";
import { recent } from "./episodes.js";
import { openDialog } from "../parts/dialog.js";
import { field } from "../parts/form.js";
import { ago } from "./pages.js";
import { goTo } from "../episode/people.js";

await style(import.meta.url);

const KINDS = { bot: "Bots", human: "People", llm: "Language models", policy: "Trained policies" };
const PACES = [["", "server default"], ["0", "as fast as possible"], ["0.5", "0.5 s per turn"], ["1.5", "1.5 s per turn"], ["3", "3 s per turn"]];
const STOP_TRIES = 40; // an episode stops after its current turn
const STOP_WAIT_MS = 150;

const titled = (player) => (player.title || player.name).replace(/:(?=\S)/, ": ");

// Pydantic titles every field after its name ("Max Turns"); any other title was written for people.
function optionLabel(name, { title }) {
  const plain = words(name);
  return title && title.toLowerCase() !== plain.toLowerCase() ? title : capital(plain);
}

// An input for an option, by the option's JSON schema. Options of other types keep their defaults.
function optionField(name, schema, value) {
  const kinds = [schema, ...(schema.anyOf || [])];
  const found = (type) => kinds.find((one) => one.type === type);
  const choices = kinds.map((one) => one.enum).find(Boolean);
  const number = found("integer") || found("number");
  let input = null;
  if (choices) input = h("select", { name }, choices.map((x) => text("option", x, { value: x, selected: x === value })));
  else if (found("boolean")) {
    const unset = found("null") ? [["", "not set"]] : [];
    input = h("select", { name }, [...unset, ["true", "yes"], ["false", "no"]].map(([v, line]) => h("option", { value: v, selected: v === String(value ?? "") }, line)));
  } else if (number && !schema.anyOf) input = h("input", { type: "number", name, value, min: number.minimum, max: number.maximum, step: number.type === "integer" ? 1 : "any" });
  if (!input) return null;
  input.read = () => (choices ? input.value : found("boolean") ? { true: true, false: false, "": null }[input.value] : Number(input.value));
  input.usual = value;
  return field(optionLabel(name, schema), input, schema.description && capital(schema.description));
}

function playerSelect(label, players, chosen) {
  const kinds = [...new Set(players.map((p) => p.kind))];
  const option = (p) => text("option", titled(p), { value: p.name, selected: p.name === chosen });
  const select = h("select", null, kinds.map((kind) => h("optgroup", { label: KINDS[kind] || kind || "Players" }, players.filter((p) => p.kind === kind).map(option))));
  return { select, node: field(label, select) };
}

export function startPanel(app, done) {
  const root = h("div.start", null, h("p.dim", null, "Loading games and players…"));
  const build = async () => {
    const { ok, data, error } = await ask("/custom/presets");
    if (!ok) return root.replaceChildren(text("p.error", error, { role: "alert" }));
    const names = Object.keys(data.games);
    const first = names.includes(data.default_game) ? data.default_game : names[0];
    let body = h("div");
    const pick = (name) => {
      const next = gamePanel(app, name, data.games[name], data.speech || {}, done);
      body.replaceWith(next);
      body = next;
    };
    const games = h("fieldset.pills.games", null, h("legend", null, "Game"), names.map((name) => h("label", null, h("input", { type: "radio", name: "game", value: name, checked: name === first, onchange: () => pick(name) }), text("span", data.games[name].title || words(name)))));
    root.replaceChildren(games, body);
    return pick(first);
  };
  root.ready = build();
  return root;
}

function gamePanel(app, name, game, speech, done) {
  const usable = game.players.filter((p) => p.usable);
  const missing = game.players.filter((p) => !p.usable);
  const [first, second] = [0, 1].map((seat) => playerSelect(`Seat ${seat}`, usable, game.default_players?.[seat]));
  const advisers = h("select", null, h("option", { value: "" }, "none"), usable.filter((p) => p.name !== "human").map((p) => text("option", titled(p), { value: p.name })));
  const packs = game.packs || [];
  const pack = h("select", null, h("option", { value: "" }, "none"), packs.map((x) => text("option", x, { value: x })));
  // a game lists the option that people change most first; it is the one outside "Research options"
  const [main, ...others] = Object.entries(game.options?.properties || {}).map(([key, schema]) => optionField(key, schema, game.defaults?.[key] ?? schema.default)).filter(Boolean);
  const voice = Boolean(speech.speaker) && speech.speaker !== "silence";
  const tts = h("input", { type: "checkbox", checked: voice });
  const hide = h("input", { type: "checkbox" });
  const seed = h("input", { type: "number", min: 0, max: Number.MAX_SAFE_INTEGER, placeholder: "random" });
  const pace = h("select", null, PACES.map(([v, line]) => h("option", { value: v }, line)));
  const trouble = h("div.trouble", { role: "alert" });
  const go = h("button.primary.wide", { type: "submit" }, "Start");

  // the main option, and those that differ from their defaults: the server knows the rest
  const options = () => Object.fromEntries([main, ...others].filter(Boolean).map((node) => [node, node.querySelector("input, select")])
    .filter(([node, input]) => (node === main || input.read() !== input.usual) && !Number.isNaN(input.read())).map(([, input]) => [input.name, input.read()]));

  const send = async (event) => {
    event.preventDefault();
    go.disabled = true;
    const request = {
      game: name, players: [first.select.value, second.select.value], eval_pack_id: pack.value || null, enable_tts: tts.checked,
      open: hide.checked ? false : null, adviser: advisers.value || null, options: options(), seed: seed.value === "" ? null : Number(seed.value),
    };
    if (pace.value !== "") request.pace = Number(pace.value);
    await launch(app, request, trouble, done);
    go.disabled = false;
  };
  const why = missing.length > 0 && h("details.missing", null, h("summary", null, `${many(missing.length, "player")} not available here`), h("dl", null, missing.flatMap((p) => [text("dt", titled(p)), text("dd", p.why || "not set up")])));
  const box = (input, line) => h("label.check", null, input, h("span", null, line));
  return h("form", { onsubmit: send }, h("div.pair", null, first.node, second.node), why, h("div.pair", null, main, field("Pace", pace)),
    box(tts, h("span", null, "Spoken commentary ", text("small.dim", voice ? `voice: ${speech.speaker}` : speech.why || ""))),
    h("details", null, h("summary", null, "Research options"), h("div.pair", null, field("Adviser of seat 0", advisers), packs.length > 1 && field("Pack", pack), field("Episode seed", seed), others), box(hide, "Hide both sides' private values from watchers until the end, as where a person plays")), trouble, go);
}

// Starts an episode and opens it; `trouble` shows why it did not start.
export async function launch(app, request, trouble, done) {
  trouble.replaceChildren();
  const answer = await ask("/custom/start_episode", request);
  if (answer.status === 409) return trouble.replaceChildren(...busy(answer, (await ask("/custom/status")).data, () => launch(app, request, trouble, done), done));
  if (!answer.ok) return trouble.replaceChildren(text("p.error", answer.error));
  if (done) done();
  return goTo(app, answer.data);
}

// 409: names the running episode and offers to watch it. The browser that started it, its players and an administrator may
// stop it instead.
function busy({ data, error }, { running = [], administers }, again, done) {
  const own = running.find((one) => mayStop(one.episode_id));
  const now = own || data.current || {};
  const most = running.length > 1 ? `${running.length} games` : "one game";
  const stop = async (event) => {
    event.currentTarget.disabled = true;
    await ask("/custom/stop_episode", { episode_id: now.episode_id });
    for (let i = 0; i < STOP_TRIES; i++) {
      const { data: { running = [] } } = await ask("/custom/status");
      if (!running.some((one) => one.episode_id === now.episode_id)) break;
      await new Promise((wake) => { setTimeout(wake, STOP_WAIT_MS); });
    }
    again();
  };
  const players = (now.players || []).map((name) => called(name)).join(" v ");
  const stops = own || administers;
  return [stops ? text("p.error", error || "An episode is already running.") : h("p.error", null, "Another game is in play."),
    h("p", null, `${capital(words(now.game || "an episode"))}: ${players}${now.started_at ? `, started ${ago(now.started_at)}` : ""}.`),
    !stops && h("p.dim", null, `This server plays ${most} at a time; start yours when it is over. `, h("code", null, "kibitz serve --max-episodes"), " raises the limit."),
    h("div.row", null, h("a.primary", { href: `/e/${now.episode_id}`, onclick: () => done && done() }, "Watch it"), stops && h("button", { onclick: stop }, "Stop it and start mine"))].filter(Boolean);
}

// the page that is shown while no episode is running
export function home(app) {
  const panel = startPanel(app);
  const root = h("div.home", null, h("section.card.hero", { "aria-label": "Start an episode" }, h("h1", null, "Start an episode"), h("p.dim", null, "No episode is running. Choose a game and its players; to play yourself, choose “A person”."), panel));
  panel.ready.then(() => root.append(recent())); // on a phone the form would push it down
  return root;
}

export function openStart(app) {
  openDialog("Start an episode", "", (dialog) => [
    h("div.row", null, h("h2", null, "Start an episode"), h("span.gap"), h("button.ghost", { "aria-label": "Close", onclick: () => dialog.close() }, "✕")),
    startPanel(app, () => dialog.close()),
  ]);
}
