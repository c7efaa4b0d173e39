// Light or dark: what the user chose last, else what the system prefers.
const dark = () => document.documentElement.dataset.theme === "dark";
const set = (theme) => { document.documentElement.dataset.theme = theme; };

export function choose() {
  set(localStorage.getItem("theme") || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
}
export function toggle() {
  set(dark() ? "light" : "dark");
  localStorage.setItem("theme", document.documentElement.dataset.theme);
}
