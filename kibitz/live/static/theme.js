// Runs before the first paint, so that the page does not flash in the wrong theme.
try {
  const chosen = localStorage.getItem("theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
} catch { /* without storage the page follows the system */ }
// in a frame of another site there is no page around the game
if (location.pathname.startsWith("/embed/")) document.documentElement.dataset.embed = "";
