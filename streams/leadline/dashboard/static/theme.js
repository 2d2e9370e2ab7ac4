// Before anything is drawn: the theme that was chosen here last, else the system's.
try {
  const chosen = localStorage.getItem("leadline-theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
} catch {
  // Storage may be forbidden; the system's theme is as good.
}
