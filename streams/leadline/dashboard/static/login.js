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
  if (answer?.ok) location.assign("/");
  else said.textContent = answer ? "That is not the token." : "The dashboard does not answer.";
});
