// How many people watch an episode; asked for rarely: a rough number is enough.
import { ask, put } from "../dom.js";

const ASK_MS = 15000;

export function audience(node, id, wanted) {
  const show = async () => {
    if (!wanted()) return put(node, "");
    if (!document.hidden) {
      const { ok, data } = await ask("/custom/status");
      const count = ok ? data.watching?.[id] || 0 : 0;
      put(node, count > 1 ? `${count} watching` : "");
    }
    return setTimeout(show, ASK_MS);
  };
  show();
}
