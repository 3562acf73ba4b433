// The frame around every page: navigation, connection, sound, theme.
import { button, h, icon, keepSeat, keptSeat, label, put, set } from "./dom.js";

const THEMES = ["auto", "light", "dark"];
const VIEWS = { "/": "pages/home", "/custom": "episode/watch", "/lobby": "pages/episodes", "/leaderboard": "pages/leaderboard", "/studies": "pages/studies", "/runs": "pages/runs", "/compare": "episode/compare" };
const FOLDERS = { __proto__: null, e: "episode/watch", embed: "episode/embed", players: "pages/player", tournaments: "pages/tournament" }; // by the first part of an address that has two
const ICONS = { auto: "half", light: "sun", dark: "moon" };
const PAGES = [["/custom", "Watch"], ["/lobby", "Episodes"], ["/leaderboard", "Leaderboard"], ["/studies", "Studies"], ["/runs", "Runs"]];
// how a connection state is shown, where its own name will not do
const STATES = { polling: "live (no socket)", idle: "waiting", replay: "complete", gone: "" };
const MIN_CHANGE_MS = 1000; // between two updates of the same state, so that the delay stays readable
const TOAST_MS = 4000;

const link = document.querySelector("#connection");
const toasts = document.querySelector("#toast");
const main = document.querySelector("main");
const yours = h("a.yours", { href: "/", hidden: true }, "Your game");
let shownAt = 0;
let voice = null; // the speech module, once the person has turned sound on

const app = {
  // `delay` is in milliseconds
  connection(state, delay) {
    const late = delay === null || delay === undefined || state !== "live" ? "" : ` · ${delay < 1000 ? `${Math.round(delay)} ms` : `${(delay / 1000).toFixed(1)} s`}`;
    const now = performance.now();
    if (link.dataset.state === state && now - shownAt < MIN_CHANGE_MS) return;
    shownAt = now;
    link.dataset.state = state;
    put(link, (STATES[state] ?? state) + late);
  },
  speak: (url) => voice?.speak(url),
  toast(text) {
    put(toasts, text);
    toasts.hidden = false;
    clearTimeout(app.toastTimer);
    app.toastTimer = setTimeout(() => { toasts.hidden = true; }, TOAST_MS);
  },
  // loads a part of the page on demand; undefined while the server cannot be reached
  need: (name) => import(`./${name}.js`).catch(() => app.toast("The server is not responding.")),
  // the way back to one's own game, from every other page
  showGame() {
    const { id } = keptSeat();
    yours.hidden = !id || location.pathname === `/e/${id}`;
    if (id) set(yours, "href", `/e/${encodeURIComponent(id)}`);
  },
  go(path, replace) {
    history[replace ? "replaceState" : "pushState"](null, "", path);
    route();
  },
};

// whether a part of an address decodes
function readable(part) {
  try { return Boolean(decodeURIComponent(part)); } catch { return false; }
}

async function route() {
  const { pathname, search, hash } = location;
  app.shown = null; // the page for the old address must not change the new one
  const [, folder, rest] = pathname.match(/^\/(\w+)\/(.+)$/) || [];
  const episode = folder === "e" || folder === "embed" ? rest : null;
  const [, kind, held] = hash.match(/^#(seat|token)=([\w-]+)$/) || [];
  if (kind === "token" || (kind && episode)) { // an invitation: this tab keeps the token, the address does not
    if (kind === "token") sessionStorage.setItem("token", held);
    else keepSeat(episode, held);
    history.replaceState(null, "", pathname + search);
  }
  const name = folder ? readable(rest) && FOLDERS[folder] : VIEWS[pathname];
  for (const one of document.querySelectorAll("nav a")) set(one, "aria-current", one.pathname === pathname ? "page" : null);
  app.showGame();
  const part = await app.need(name || "pages/pages");
  if (location.pathname !== pathname) return;
  document.title = "kibitz";
  if (!part || !name) { // the old page must not stand under the new address
    app.connection("gone");
    main.replaceChildren(part ? part.noPage(pathname) : h("div.empty", null, h("h1", null, "The server is not responding"), h("button.primary", { onclick: () => location.reload() }, "Try again")));
    return;
  }
  const node = document.createElement(`kibitz-${name.split("/")[1]}`);
  const seq = new URLSearchParams(search).get("seq");
  Object.assign(node, { app, episode: episode || null, seq: seq === null ? null : Number(seq) || 0 });
  if (name !== "episode/watch") app.connection("gone");
  app.shown = node;
  main.replaceChildren(node);
}

document.addEventListener("click", (event) => {
  const anchor = event.target.closest("a[href]");
  if (!anchor || anchor.origin !== location.origin || event.ctrlKey || event.metaKey || event.shiftKey || anchor.hash || anchor.pathname.startsWith("/reports/")) return; // a report is a page of its own
  event.preventDefault();
  app.go(anchor.pathname + anchor.search);
  scrollTo(0, 0);
});
addEventListener("popstate", route);

document.querySelector("nav").append(...PAGES.map(([path, name]) => h("a", { href: path }, name)));
document.querySelector("nav").after(yours); // on a phone the row of pages is full

let theme = document.documentElement.dataset.theme || "auto"; // set by theme.js
const themeButton = button(ICONS[theme], "Theme", () => {
  theme = THEMES[(THEMES.indexOf(theme) + 1) % 3];
  try { localStorage.setItem("theme", theme); } catch { /* lasts for this page only */ }
  showTheme();
});
function showTheme() {
  set(document.documentElement, "data-theme", theme === "auto" ? null : theme);
  themeButton.replaceChildren(icon(ICONS[theme]));
  label(themeButton, `Theme: ${theme === "auto" ? "system" : theme}`);
}
const soundButton = button("mute", "Sound", toggleSound);
async function toggleSound() {
  if (voice) voice = voice.hush();
  else voice = await app.need("stream/speech");
  try { localStorage.setItem("sound", voice ? "on" : ""); } catch { /* lasts for this page only */ }
  showSound();
}
function showSound() {
  soundButton.replaceChildren(icon(voice ? "sound" : "mute"));
  set(soundButton, "aria-pressed", String(Boolean(voice)));
  label(soundButton, voice ? "Mute the commentary" : "Speak the commentary");
}
showTheme();
showSound();
document.querySelector("#tools").append(soundButton, themeButton);
document.addEventListener("keydown", async (event) => {
  if (event.key === "?" && !event.target.closest("input:not([type=radio], [type=range]), textarea, dialog")) (await app.need("parts/keys"))?.openKeys();
  if (event.key === "m" && !event.target.closest("input, select, textarea, dialog")) toggleSound();
});
try { if (localStorage.getItem("sound")) toggleSound(); } catch { /* no storage: sound is off */ }
route();
