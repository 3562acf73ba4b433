// Shares a moment: its link, its card as a picture, and the code that shows the game on another site.
import { ask, copy, h, put, signed, style, text } from "../dom.js";
import { openDialog } from "../parts/dialog.js";

await style(import.meta.url);

const WIDTH = 1200;
const HEIGHT = 630;

export async function openShare(id, seq) {
  const { data } = await ask("/custom/status");
  const link = `${location.origin}/e/${id}?seq=${seq}`;
  const picture = signed(`/episodes/${id}/card.png?seq=${seq}`);
  const card = document.createElement("img");
  Object.assign(card, { src: picture, alt: "The card of this moment", width: WIDTH, height: HEIGHT, className: "sharecard" });
  const frame = `<iframe src="${location.origin}/embed/${id}?seq=${seq}" width="560" height="560" title="A game on kibitz"></iframe>`;
  openDialog("Share this moment", "", (dialog) => [
    h("div.row", null, h("h2", null, "Share this moment"), h("span.gap"), h("button.ghost", { "aria-label": "Close", onclick: () => dialog.close() }, "✕")), card,
    ...copied("Link", link), ...(data.embed ? copied("Code for another site", frame) : []),
    h("div.row", null, h("button.primary", { onclick: () => save(picture, `kibitz-${id}-${seq}.png`) }, "Save the picture")),
    h("p.dim.small", null, "Card, link and frame show what every watcher may see: no private values while a person plays."),
  ]);
}

// A line to copy.
function copied(label, line) {
  const done = h("span.dim.small", { role: "status" });
  return [h("div.copied", null, h("b", null, label), text("code", line), h("button", { "aria-label": `Copy: ${label}`, onclick: async () => await copy(line) && put(done, "Copied.") }, "Copy"), done)];
}

function save(picture, name) {
  const anchor = document.createElement("a");
  Object.assign(anchor, { href: picture, download: name });
  anchor.click();
}
