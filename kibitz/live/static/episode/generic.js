// Draws any game that brings no page of its own: the frame as tables, the running score, the last act of each seat.
//
// A list of two is taken for one value per seat and becomes two columns; a list of equal records becomes a table;
// everything else is shown under its own name. Values that changed with the last turn are bold.
import { badge, capital, card, h, heads, moment, put, scroll, seatClass, style, text, words } from "../dom.js";
import { chart, key, line, ticks } from "../chart.js";

style(import.meta.url);

export const newestFirst = true;
const MAX_POINTS = 450; // of a line; beyond that every second point goes
const MAX_ROWS = 60; // of a table, the last ones
const MAX_DEPTH = 5; // of nested records; deeper ones are shown as JSON
const SHORT_LIST = 12; // items that fit into one cell

export const begin = () => ({ totals: [null, null], points: [], before: null, acts: [null, null] });

export function step(state, before, entry) {
  const { memory } = state;
  memory.before = before;
  entry.rewards.forEach((reward, seat) => {
    if (typeof reward === "number") memory.totals[seat] = (memory.totals[seat] ?? 0) + reward;
  });
  memory.points.push([entry.turn + 1, ...memory.totals]);
  if (memory.points.length > MAX_POINTS) memory.points = memory.points.filter((_, i) => i % 2 === 0);
  for (const one of entry.decisions) memory.acts[one.seat] = { turn: entry.turn, text: one.text };
}

export function scoreboard(state) {
  const { ended, memory, names } = state;
  const paid = ended ? ended.returns : memory.totals;
  const sides = [0, 1].map((seat) => ({
    seat, name: names[seat], by: "", active: !ended && state.asked?.seat === seat, won: Boolean(ended) && paid[seat] > paid[1 - seat],
    main: show(paid[seat]), sub: ended ? "final score" : paid[seat] === null ? (state.turn < 0 ? "" : "score hidden until the end") : "so far",
  }));
  return { sides, tags: [], now: ended || state.turn < 0 ? [] : [`Turn ${state.turn + 1}`] };
}

export function mount(root) {
  const parts = [positionCard(), privateCard(), scoreCard(), actsCard(), resultCard()];
  const [position, own, score, acts, result] = parts.map((part) => part.node);
  root.append(h("div.col.one.generic", null, position, own), h("div.col.two.generic", null, result, score, acts));
  let last;
  return (state) => {
    // revealed rewards change the totals of a turn that has been drawn
    const stamp = `${moment(state)}.${state.memory.totals}`;
    if (stamp === last) return;
    last = stamp;
    for (const part of parts) part.draw(state);
  };
}

// A card that is hidden while it has nothing to show; `content(state)` returns its title and its nodes.
function sheet(title, cls, content) {
  const body = h("div.parts");
  const node = card(title, cls, body);
  const draw = (state) => {
    const [name, nodes] = content(state);
    node.hidden = !nodes.length;
    node.setAttribute("aria-label", name);
    put(node.querySelector("h2"), name);
    body.replaceChildren(...nodes);
  };
  return { node, draw };
}

const positionCard = () => sheet("Position", "first", ({ frame, memory, names }) => ["Position", record(frame, memory.before, names, 0)]);

function privateCard() {
  return sheet("Private values", "second", (state) => {
    const known = [0, 1].filter((seat) => isRecord(state.private[seat]) && Object.keys(state.private[seat]).length);
    if (known.length === 2) return ["Private values", record(zip([state.private[0], state.private[1]]), null, state.names, 0)];
    const [seat] = known;
    if (seat === undefined) return ["Private values", []];
    return [seat === state.mine ? "Your private values" : `Private values of ${state.names[seat]}`, record(state.private[seat], null, state.names, 0)];
  });
}

function actsCard() {
  return sheet("Last acts", "acts", ({ memory, names }) => {
    const rows = memory.acts.flatMap((act, seat) => (act ? [h("tr", null, h("th", { scope: "row" }, badge(seat), ` ${names[seat]}`), text("td.left", show(act.text)), h("td", null, `turn ${act.turn + 1}`))] : []));
    return ["Last acts", rows.length ? [h("table.data", null, heads(["Player", "Act", "When"], [1]), h("tbody", null, rows))] : []];
  });
}

function resultCard() {
  return sheet("Result", "result", ({ ended, review, names }) => {
    if (!ended) return ["Result", []];
    return ["Result", record({ returns: ended.returns, ...ended.scores, ...review }, null, names, 0)];
  });
}

function scoreCard() {
  const keys = [0, 1].map((seat) => key(seat));
  const picture = chart("Running score", 200, h("span.keys", null, keys));
  const node = h("section.card", { "aria-label": "Running score" }, picture.node);
  const draw = (state) => {
    const { points } = state.memory;
    node.hidden = !points.some(([, ...totals]) => totals.some((total) => total));
    keys.forEach((spot, seat) => put(spot, state.names[seat]));
    if (!node.hidden) picture.draw(scoreSpec(state, points));
  };
  return { node, draw };
}

function scoreSpec({ names }, points) {
  const seats = [0, 1].filter((seat) => points.some((point) => point[seat + 1] !== null));
  const all = points.flatMap(([, ...totals]) => totals.filter((total) => total !== null));
  const [low, top] = [Math.min(0, ...all), Math.max(0, ...all)];
  const end = points[points.length - 1][0];
  return {
    x: [0, end], y: [low, top], xt: [[0, "start"], [end, `turn ${end}`]], yt: ticks(top, 4, low).map((v) => [v, String(v)]),
    label: `After turn ${end}: ${seats.map((seat) => `${names[seat]} ${show(points[points.length - 1][seat + 1])}`).join(", ")}.`,
    head: ["Turn", ...seats.map((seat) => names[seat])],
    rows: () => points.map(([turn, ...totals]) => [turn, ...seats.map((seat) => show(totals[seat]))]),
    draw: (px, py) => seats.map((seat) => line([[0, 0], ...points.filter((point) => point[seat + 1] !== null).map((point) => [point[0], point[seat + 1]])], px, py, `line ${seatClass(seat)}${seat ? " dashed" : ""}`)),
  };
}

const isRecord = (x) => x !== null && typeof x === "object" && !Array.isArray(x);
const isPlain = (x) => x === null || x === undefined || typeof x !== "object";
const isFlat = (x) => isPlain(x) || (Array.isArray(x) && x.length <= SHORT_LIST && x.every(isPlain));
// a plain value for each seat, or a short list for each
const isPair = (x) => Array.isArray(x) && x.length === 2 && x.every(isFlat);

// { a: [1, 2] } of [{ a: 1 }, { a: 2 }]
function zip(two) {
  const names = new Set(two.flatMap((one) => Object.keys(one || {})));
  return Object.fromEntries([...names].map((name) => [name, two.map((one) => one?.[name] ?? null)]));
}

// a value as people write it; what is too deep for a table stays JSON
function show(value) {
  if (value === null || value === undefined || value === "") return "–";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number") return String(Number(value.toFixed(3)));
  if (typeof value === "string") return /^[a-z0-9]+(_[a-z0-9]+)+$/.test(value) ? words(value) : value;
  if (Array.isArray(value) && value.every(isPlain)) return value.map(show).join(", ") || "–";
  return JSON.stringify(value);
}

const title = (name) => capital(words(name));
const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);
const cell = (value, old) => text(old === undefined || same(value, old) ? "td" : "td.changed", show(value));

// the nodes of a record: its pairs in one table, its plain values in another, then everything that is nested
function record(values, before, names, depth) {
  const entries = Object.entries(values || {});
  const old = (name) => (isRecord(before) && name in before ? before[name] : undefined);
  const row = (name, cells) => h("tr", null, text("th", title(name), { scope: "row" }), cells);
  const pairs = entries.filter(([, value]) => isPair(value));
  const plain = entries.filter(([, value]) => !isPair(value) && isFlat(value));
  const nested = entries.filter(([, value]) => !isFlat(value) && !isPair(value));
  const nodes = [];
  if (plain.length) nodes.push(h("table.data", null, h("tbody", null, plain.map(([name, value]) => row(name, [cell(value, old(name))])))));
  if (pairs.length) nodes.push(h("table.data.pairs", null, seatHeads("", names), h("tbody", null, pairs.map(([name, value]) => row(name, value.map((one, seat) => cell(one, old(name)?.[seat])))))));
  for (const [name, value] of nested) {
    const parts = depth < MAX_DEPTH ? nest(value, old(name), names, depth + 1, title(name)) : [text("code", JSON.stringify(value))];
    if (parts.length) nodes.push(h("section.part", null, text("h3", title(name)), parts));
  }
  return nodes;
}

function nest(value, before, names, depth, name) {
  if (isRecord(value)) return record(value, before, names, depth);
  if (value.length === 2 && value.every((one) => one === null || isRecord(one))) return record(zip(value), Array.isArray(before) ? zip(before) : null, names, depth);
  const first = Math.max(0, value.length - MAX_ROWS);
  const shown = value.slice(first);
  const note = first ? [h("p.dim.small", null, `The last ${MAX_ROWS} of ${value.length}`)] : [];
  if (shown.every(isPlain)) return [text("p", show(shown)), ...note];
  if (shown.every(isRecord)) return [scroll(name, recordTable(shown, first)), ...note];
  if (shown.every((row) => Array.isArray(row) && row.length === 2)) return [scroll(name, h("table.data.pairs", null, seatHeads("#", names), h("tbody", null, shown.map((row, i) => numbered(first + i, row))))), ...note];
  return [scroll(name, h("table.data", null, h("tbody", null, shown.map((row, i) => numbered(first + i, Array.isArray(row) ? row : [row]))))), ...note];
}

const numbered = (i, row) => h("tr", null, h("th.number", { scope: "row" }, String(i + 1)), row.map((one) => cell(one)));
const seatHeads = (corner, names) => h("thead", null, h("tr", null, corner ? h("th", { scope: "col" }, corner) : h("td"), names.map((name, seat) => h("th", { scope: "col" }, badge(seat), ` ${name}`))));

function recordTable(rows, first) {
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const left = columns.flatMap((name, i) => (rows.some((row) => typeof row[name] === "string" || !isPlain(row[name])) ? [i + 1] : []));
  const cells = (row) => columns.map((name, i) => text(left.includes(i + 1) ? "td.left" : "td", show(row[name])));
  return h("table.data", null, heads(["#", ...columns.map(title)], left), h("tbody", null, rows.map((row, i) => h("tr", null, h("th.number", { scope: "row" }, String(first + i + 1)), cells(row)))));
}
