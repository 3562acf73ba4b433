// The dialog with all keys.
import { h } from "../dom.js";
import { openDialog } from "./dialog.js";

const KEYS = [
  ["Watching", [["← →", "one turn back or forward"], ["Shift + ← →", "previous or next key moment"], ["Home, End", "start or end"], ["Space", "play or pause"], ["L", "back to live"], ["M", "speak or mute the commentary"]]],
  ["Playing", [["1 to 9", "choose"], ["Enter", "play"], ["H", "fill in the hint"]]],
  ["Everywhere", [["?", "show these keys"], ["Esc", "close"]]],
];

export function openKeys() {
  openDialog("Keys", "small", (dialog) => [
    h("div.row", null, h("h2", null, "Keys"), h("span.gap"), h("button.ghost", { "aria-label": "Close", onclick: () => dialog.close() }, "✕")),
    ...KEYS.flatMap(([title, keys]) => [h("h3", null, title), h("dl.keylist", null, keys.flatMap(([key, action]) => [h("dt", null, h("kbd", null, key)), h("dd", null, action)]))]),
  ]);
}
