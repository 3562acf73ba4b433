// before the first paint, so that nothing flashes
try {
  const chosen = localStorage.getItem("theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
} catch { /* a page without storage follows the system */ }
