// Sends the token once; the server answers with a cookie that scripts cannot read.

const form = document.getElementById("login");
const said = document.getElementById("said");

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const token = document.getElementById("token").value;
  const answer = await fetch("/login", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ token }),
  }).catch(() => null);
  if (answer?.ok) location.assign(wanted());
  else if (answer?.status === 429) said.textContent = `Too many wrong tokens came from here. Try again in ${answer.headers.get("retry-after")} seconds.`;
  else said.textContent = answer?.status === 401 ? "That is not the token." : "The dashboard does not answer.";
});

/** Where the reader came from; only within this site. */
function wanted() {
  const next = new URLSearchParams(location.search).get("next") ?? "/";
  const target = next.startsWith("/") && URL.canParse(next, location.origin) ? new URL(next, location.origin) : null;
  return target?.origin === location.origin ? target.pathname + target.search : "/";
}
