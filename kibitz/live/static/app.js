// The frame around every page: where we are, the connection, sound, theme.
import { button, h, icon, put, set } from "./dom.js";
import { speaking, toggle } from "./speech.js";
import "./pages.js";
import "./watch.js";

const THEMES = ["auto", "light", "dark"];
const ICONS = { auto: "half", light: "sun", dark: "moon" };
const PAGES = [["/custom", "Watch"], ["/lobby", "Episodes"], ["/leaderboard", "Leaderboard"], ["/runs", "Runs"]];
const STATES = { connecting: "connecting", live: "live", polling: "live (plain)", idle: "waiting", reconnecting: "reconnecting", replay: "complete", gone: "" };

const link = document.querySelector("#connection");
const toasts = document.querySelector("#toast");
const main = document.querySelector("main");
let said = 0;

const app = {
  // connection and delay, in words and not more often than one can read
  connection(state, delay) {
    const late = delay === null || delay === undefined || state !== "live" ? "" : ` · ${delay < 1000 ? `${Math.round(delay)} ms` : `${(delay / 1000).toFixed(1)} s`}`;
    const now = performance.now();
    if (link.dataset.state === state && now - said < 1000) return;
    said = now;
    link.dataset.state = state;
    put(link, (STATES[state] ?? state) + late);
  },
  toast(text) {
    put(toasts, text);
    toasts.hidden = false;
    clearTimeout(app.toastTimer);
    app.toastTimer = setTimeout(() => { toasts.hidden = true; }, 4000);
  },
  go(path) {
    history.pushState(null, "", path);
    route();
  },
};

function route() {
  const { pathname, search } = location;
  const [, episode] = pathname.match(/^\/e\/([^/]+)$/) || [];
  const name = episode ? "watch" : { "/lobby": "lobby", "/leaderboard": "leaderboard", "/runs": "runs" }[pathname] || "watch";
  const node = document.createElement(`kibitz-${name}`);
  const seq = new URLSearchParams(search).get("seq");
  Object.assign(node, { app, episode: episode || null, seq: seq === null ? null : Number(seq) || 0 });
  if (name !== "watch") app.connection("gone");
  document.title = "kibitz";
  main.replaceChildren(node);
  for (const one of document.querySelectorAll("nav a")) set(one, "aria-current", one.pathname === pathname ? "page" : null);
}

document.addEventListener("click", (event) => {
  const anchor = event.target.closest("a[href]");
  if (!anchor || anchor.origin !== location.origin || event.ctrlKey || event.metaKey || event.shiftKey || anchor.hash) return;
  event.preventDefault();
  app.go(anchor.pathname + anchor.search);
  scrollTo(0, 0);
});
addEventListener("popstate", route);

document.querySelector("nav").append(...PAGES.map(([path, name]) => h("a", { href: path }, name)));

const stored = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
let theme = THEMES.includes(stored()) ? stored() : "auto";
const themeButton = button(ICONS[theme], "Theme", () => {
  theme = THEMES[(THEMES.indexOf(theme) + 1) % 3];
  try { localStorage.setItem("theme", theme); } catch { /* it holds for this page */ }
  showTheme();
});
function showTheme() {
  set(document.documentElement, "data-theme", theme === "auto" ? null : theme);
  themeButton.replaceChildren(icon(ICONS[theme]));
  for (const name of ["title", "aria-label"]) themeButton.setAttribute(name, `Theme: ${theme === "auto" ? "as the system" : theme}`);
}
const soundButton = button("mute", "Sound", () => { toggle(); showSound(); }, { "aria-pressed": "false" });
function showSound() {
  soundButton.replaceChildren(icon(speaking() ? "sound" : "mute"));
  set(soundButton, "aria-pressed", String(speaking()));
  for (const name of ["title", "aria-label"]) soundButton.setAttribute(name, speaking() ? "Commentary is spoken: mute" : "Speak the commentary");
}
showTheme();
showSound();
document.querySelector("#tools").append(soundButton, themeButton);
document.addEventListener("keydown", (event) => {
  if (event.key === "m" && !event.target.closest("input, select, textarea, dialog")) { toggle(); showSound(); }
});
route();
