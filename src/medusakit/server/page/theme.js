// Before anything is drawn: the theme that was chosen here, else the system's.
(() => {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
  const show = () => { document.documentElement.dataset.theme = chosen() ?? (system.matches ? "dark" : "light"); };
  show();
  system.addEventListener("change", show);
})();
