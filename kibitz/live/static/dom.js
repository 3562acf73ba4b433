// Elements, text and requests. Text is only ever inserted as text, never as markup.
const SVG = "http://www.w3.org/2000/svg";

// What `h` and `s` may set. Anything else is a mistake, or data that was taken for properties.
const ATTRIBUTES = new Set(`alt autocomplete checked class colspan cx cy d dir disabled dx dy for height hidden href id label lang max method min name open placeholder points
  preserveAspectRatio r rel role rowspan rx ry scope selected step tabindex text-anchor title transform type viewBox width x x1 x2 y y1 y2`.split(/\s+/));

function attribute(node, key, value) {
  if (key.startsWith("on") && typeof value === "function") node.addEventListener(key.slice(2), value);
  else if (key === "vars") for (const [name, v] of Object.entries(value)) node.style.setProperty(name, Number(v));
  else if (key === "value") node.value = value;
  else if (!ATTRIBUTES.has(key) && !key.startsWith("aria-")) throw new TypeError(`${node.localName} takes no property ${key}`);
  // links stay on this server: no javascript: and no other host
  else if (key === "href" && !/^(\/(?!\/)|#)/.test(value) && !value.startsWith(`${location.origin}/`)) throw new TypeError("a link must stay on this server");
  else node.setAttribute(key, value === true ? "" : value);
}

// `h("p.dim.small", { title: "why" }, "text", node, [nodes])`. The second argument is null or written out in the call,
// because JSON may hold an object where words belong, and that object must never become properties. A child is a node
// or text; null, undefined and false are omitted, and any other object is shown as JSON.
function build(node, classes, props, kids) {
  if (props && props.constructor !== Object) throw new TypeError(`write null before the children of ${node.localName}`);
  if (classes.length) node.setAttribute("class", classes.join(" "));
  for (const [key, value] of Object.entries(props || {})) if (value !== undefined && value !== null && value !== false) attribute(node, key, value);
  for (const kid of kids.flat()) if (kid !== null && kid !== undefined && kid !== false) node.append(kid instanceof Node ? kid : plain(kid));
  return node;
}

const plain = (value) => (typeof value === "object" ? JSON.stringify(value) : String(value));

export function h(name, props, ...kids) {
  const [tag, ...classes] = name.split(".");
  const node = document.createElement(tag);
  if (tag === "button") node.type = "button"; // unless the properties say that it submits
  return build(node, classes, props, kids);
}

export function s(name, props, ...kids) {
  const [tag, ...classes] = name.split(".");
  return build(document.createElementNS(SVG, tag), classes, props, kids);
}

// an element whose only child is text, whatever `value` is
export const text = (name, value, props = {}) => put(h(name, props), value);

// Loads a module's style sheet, which has the module's name. A module awaits it before it draws, or awaits `styled()`
// later if it has other work to do first.
const sheets = new Map();
export function style(module) {
  const href = module.replace(/js$/, "css");
  if (!sheets.has(href)) sheets.set(href, new Promise((done) => document.head.append(h("link", { rel: "stylesheet", href, onload: done, onerror: done }))));
  return sheets.get(href);
}
export const styled = () => Promise.all(sheets.values());

export function put(node, text) {
  const value = text === null || text === undefined ? "" : plain(text);
  if (node.textContent !== value) node.textContent = value;
  return node;
}

export function set(node, name, value) {
  if (value === null || value === undefined || value === false) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value === true ? "" : value);
}

// Gives `parent` one child per item and reuses children by key; `draw(node, item)` updates one.
export function list(parent, items, key, make, draw) {
  const old = parent.kept || new Map();
  const now = new Map();
  let at = parent.firstChild;
  for (const item of items) {
    const id = key(item);
    const node = old.get(id) || make(item);
    old.delete(id);
    now.set(id, node);
    if (draw) draw(node, item);
    if (node === at) at = at.nextSibling;
    else parent.insertBefore(node, at);
  }
  for (const node of old.values()) node.remove();
  parent.kept = now;
}

// The same for rows that are cheap to describe: a row is rebuilt only when its description changes.
export function rows(parent, items, key, describe, make) {
  list(parent, items, key, make, (node, item) => {
    const stamp = JSON.stringify(describe(item));
    if (node.stamp !== undefined && node.stamp !== stamp) node.replaceChildren(...make(item).childNodes);
    node.stamp = stamp;
  });
}

// Identifies a moment of an episode. A game looks the same throughout a moment, so it is drawn once per turn rather
// than once per event.
export const moment = ({ id, turn, status, private: known }) => `${id}.${turn}.${status}.${Object.keys(known)}`;
export function eachMoment(draw) {
  let last;
  return (state) => {
    if (moment(state) === last) return;
    last = moment(state);
    draw(state);
  };
}

// An address for sockets, streams and sounds, which cannot send headers. It contains the token only if this server has
// asked for one before it showed anything.
export function signed(path) {
  const token = sessionStorage.getItem("private") && sessionStorage.getItem("token");
  return token ? `${path}${path.includes("?") ? "&" : "?"}token=${encodeURIComponent(token)}` : path;
}

// GET, or POST with a body. `error` is the server's own sentence, for the person to read.
export async function ask(path, body) {
  const options = { headers: { Accept: "application/json" } };
  const known = sessionStorage.getItem("token");
  if (known) options.headers.Authorization = `Bearer ${known}`;
  if (body !== undefined) {
    options.method = "POST";
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    return { ok: false, status: 0, data: {}, error: "The server is not responding." };
  }
  const data = await answer.json().catch(() => ({}));
  if (answer.status === 401 && body === undefined) sessionStorage.setItem("private", "yes");
  const barred = answer.status === 401 || (answer.status === 403 && known);
  if (barred && (await (await import("./parts/token.js")).askToken(known, answer.status === 403 && data.error))) return ask(path, body);
  const error = answer.ok ? "" : data.error || `The server answered ${answer.status}.`;
  return { ok: answer.ok, status: answer.status, data, error };
}

const PATHS = {
  first: "M4 4v12M16 4 7 10l9 6z", back: "M14 4 6 10l8 6z", play: "M6 4v12l10-6z", pause: "M7 4v12M13 4v12",
  on: "m6 4 8 6-8 6z", last: "M16 4v12M4 4l9 6-9 6z", link: "M8 12 12 8M9 6l2-2a3.5 3.5 0 0 1 5 5l-2 2M11 14l-2 2a3.5 3.5 0 0 1-5-5l2-2",
  branch: "M6 4v12M6 12c0-4 8-2 8-7M12 6l2-2 2 2", sound: "M4 8v4h3l4 3V5L7 8zM14 7.5a4 4 0 0 1 0 5M16 5.5a7 7 0 0 1 0 9",
  mute: "M4 8v4h3l4 3V5L7 8zM14 8l4 4M18 8l-4 4", sun: "M10 6.5a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7M10 2v2M10 16v2M2 10h2M16 10h2M4.5 4.5l1.3 1.3M14.2 14.2l1.3 1.3M15.5 4.5l-1.3 1.3M5.8 14.2l-1.3 1.3",
  moon: "M15.5 12A6.5 6.5 0 0 1 8 4.5a6 6 0 1 0 7.5 7.5z", half: "M10 3.5a6.5 6.5 0 1 0 0 13zM10 3.5a6.5 6.5 0 0 1 0 13", stop: "M5 5h10v10H5z",
  yes: "m4 10.5 4 4 8-9", no: "m5 5 10 10M15 5 5 15", insist: "M10 3.5v8.5M10 15.5v1", flag: "M5 17V4h9l-2 3 2 3H5",
  star: "m10 3 2.1 4.6 5 .5-3.8 3.4 1.1 5L10 14l-4.4 2.5 1.1-5L2.9 8.1l5-.5z",
};
export const icon = (name) =>
  s("svg", { viewBox: "0 0 20 20", class: `icon i-${name}`, "aria-hidden": "true" }, s("path", { d: PATHS[name] }));

// Names a button that shows no words, for the pointer and for screen readers.
export function label(node, text) {
  for (const name of ["title", "aria-label"]) set(node, name, text);
  return node;
}

export const button = (name, text, onclick, props) => label(h("button.ghost", { onclick, ...props }, icon(name)), text);

// The class of a seat; one from another server's event may be anything.
export const seatClass = (seat) => (Number(seat) ? "seat1" : "seat0");

// Seat 0 is a disc and seat 1 a diamond: colour is never the only sign.
export const badge = (seat) =>
  s("svg", { viewBox: "0 0 12 12", class: `badge ${seatClass(seat)}`, role: "img", "aria-label": `seat ${seat}` },
    seat === 0 ? s("circle", { cx: 6, cy: 6, r: 5 }) : s("path", { d: "M6 .5 11.5 6 6 11.5.5 6z" }));

// A side's crest: a shield or a pennant with the initials of its name, so that two sides differ in shape, colour and letters.
export const crest = (name, seat) =>
  s("svg", { viewBox: "0 0 28 30", class: `crest ${seatClass(seat)}`, role: "img", "aria-label": `seat ${seat}` },
    s("path", { d: Number(seat) ? "M14 1 27 15 14 29 1 15z" : "M2 2h24v14c0 7-6 11-12 13C8 27 2 23 2 16z" }),
    s("text", { x: 14, y: 19, "text-anchor": "middle" }, String(name).split(/\s+/).map((word) => word[0] || "").slice(0, 2).join("").toUpperCase()));

export const card = (title, cls, ...kids) =>
  h("section", { class: `card ${cls || ""}`, "aria-label": title }, h("h2", null, title), ...kids);

// Content that exceeds its place scrolls in a frame of its own, which the keyboard can reach.
export const scroll = (label, node, cls = "") => h("div", { class: `scroll ${cls}`, tabindex: 0, role: "group", "aria-label": label }, node);

export const heads = (names, left = []) =>
  h("thead", null, h("tr", null, names.map((name, i) => h("th", { scope: "col", class: left.includes(i) && "left" }, name))));

// A player's name for people: `policy:runs/first-try` becomes "policy first-try", `llm:auto` "model auto".
export function called(player, mine) {
  if (player === "human") return mine ? "You" : "a person";
  const [, kind, rest] = player.match(/^([^:]*):?(?:.*\/)?(.*?)\/?$/s);
  return rest ? `${kind === "llm" ? "model" : kind} ${rest}` : kind;
}

// A name from code as people write it: `max_turns` becomes "max turns", or "Max turns" as a title.
export const words = (name) => String(name).replaceAll("_", " ");
export const capital = (line) => line.replace(/^./, (letter) => letter.toUpperCase());

export const many = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;

// Whether the text is now in the clipboard. Browsers offer `navigator.clipboard` only over HTTPS and on this machine.
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const before = document.activeElement;
    const area = h("textarea.sr", { "aria-hidden": "true" });
    (document.querySelector("dialog[open]") || document.body).append(area); // outside of a dialog nothing can be selected
    area.value = text;
    area.focus();
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    before?.focus();
    return done;
  }
}

// A seat belongs to its tab, and survives leaving the page: another tab of this browser returns to the newest one.
export function keepSeat(id, token) {
  sessionStorage.setItem(`seat:${id}`, token);
  try { localStorage.setItem("playing", JSON.stringify({ id, token })); } catch { /* this tab alone has it */ }
}
export function keptSeat() {
  try { return JSON.parse(localStorage.getItem("playing")) || {}; } catch { return {}; }
}
// This browser may stop what it started and what it plays in; anybody else's game is not its own to end.
const MAX_STARTED = 50; // ids kept
function startedHere() {
  try { return JSON.parse(localStorage.getItem("started")) || []; } catch { return []; }
}
export function noteStarted(id) {
  sessionStorage.setItem(`started:${id}`, "yes");
  try { localStorage.setItem("started", JSON.stringify([id, ...startedHere()].slice(0, MAX_STARTED))); } catch { /* this tab alone may stop it */ }
}
export const mayStop = (id) => Boolean(sessionStorage.getItem(`started:${id}`) || sessionStorage.getItem(`seat:${id}`)) || keptSeat().id === id || startedHere().includes(id);
export function dropSeat(id) {
  try { if (keptSeat().id === id) localStorage.removeItem("playing"); } catch { /* nothing was kept */ }
}
