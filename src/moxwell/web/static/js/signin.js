// The pages without a session: copies the command, and goes on when somebody has signed in.
import { choose } from "./theme.js";

choose();
const button = document.getElementById("copy");
button.onclick = async () => {
  await navigator.clipboard?.writeText(document.querySelector("code").textContent);
  button.textContent = "Copied";
};
setInterval(async () => {
  if (location.pathname.startsWith("/enter/")) return;
  const answer = await fetch("/api/session").catch(() => null);
  if (answer?.ok) location.reload();
}, 2000);
