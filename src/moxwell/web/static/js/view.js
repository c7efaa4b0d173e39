// The state of the view: page width, selection, open dialog. No data of Moxwell.
export const view = { lit: null, say: null, phone: false, sheet: null, query: "", pick: 0, filter: "", places: {}, reveal: null };
export function measure(widest, empty) {
  view.phone = window.innerWidth <= 720;
  const map = window.innerWidth - (empty ? 478 : 322) - 40;
  const cell = Math.max(26, Math.min(68, Math.floor((map - widest.hosts * 36) / Math.max(4, widest.columns))));
  document.documentElement.style.setProperty("--cell", view.phone ? "calc((100vw - 58px) / 8)" : `${cell}px`);
}
