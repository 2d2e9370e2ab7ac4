// Acting: a silence, a halt or a release by hand. The token is asked for each time the page is opened and kept in memory only.

import { html, render, nothing } from "/static/vendor/lit-html/lit-html.js";
import { shown } from "/static/text.js";

let token = "";
let who = "";

const TITLES = { halt: "Halt this session", resume: "Release this session", silence: "Silence a rule", lift: "Lift the silence" };
const SAYS = {
  halt: "The monitor sends the agent a halt, repeats it until it is acknowledged, and stops the agent if it does not answer. It stands until somebody releases it.",
  resume: "The monitor sends the agent a resume. A rule whose measurements are still bad halts it again: silence that rule first.",
  silence: "The rule is in shadow until the silence ends: recorded and flagged, nothing is commanded. What it has halted is released.",
  lift: "The rule is enforced again from now on.",
};

/** Opens a dialog; `given` is what is sent beside what the person fills in: action, session_id, agent_id, fleet, silence_id, rule. */
export function act(given, { config, rules = [], fleets = [] }) {
  const root = document.createElement("dialog");
  root.setAttribute("aria-labelledby", "act-title");
  document.body.append(root);
  let said = "";
  let busy = false;

  async function send(event) {
    event.preventDefault();
    const form = new FormData(event.target);
    token = form.get("token");
    who = form.get("who") ?? "";
    const body = { ...given, why: form.get("why"), who };
    for (const name of ["rule", "fleet"]) if (form.get(name)) body[name] = form.get(name);
    if (form.get("minutes")) body.minutes = Number(form.get("minutes"));
    busy = true;
    draw();
    try {
      const answer = await fetch("/api/acts", {
        method: "POST",
        headers: { "content-type": "application/json", "x-leadline-act-token": token },
        body: JSON.stringify(body),
      });
      const told = await answer.json();
      if (answer.ok) return root.close();
      said = told.error;
    } catch {
      said = "The dashboard does not answer.";
    }
    busy = false;
    draw();
  }

  function draw() {
    const choose = given.action === "silence" && !given.rule;
    render(
      html`<form @submit=${send}>
        <h2 id="act-title">${TITLES[given.action]}</h2>
        ${given.session_id ? html`<p class="id">${shown(given.session_id)}</p>` : nothing}
        <p class="soft">${SAYS[given.action]}</p>
        ${given.action === "silence" && !given.session_id && !given.fleet ? html`<label>Fleet <select name="fleet" required>${fleets.map((fleet) => html`<option value=${fleet}>${shown(fleet, 60)}</option>`)}</select></label>` : nothing}
        ${choose ? html`<label>Rule <select name="rule" required>${rules.filter((rule) => rule !== "manual").map((rule) => html`<option>${rule}</option>`)}</select></label>` : nothing}
        ${given.action === "silence" ? html`<label>For <select name="minutes"><option value="15">15 minutes</option><option value="60" selected>1 hour</option><option value="480">8 hours</option><option value="1440">1 day</option><option value="10080">1 week</option></select></label>` : nothing}
        <label>Why <textarea name="why" required maxlength="1024" rows="2"></textarea></label>
        ${config.user ? html`<p class="soft">as ${shown(config.user, 100)}</p>` : html`<label>Who you are <input name="who" required maxlength="256" .value=${who} autocomplete="username"></label>`}
        <label>Token for acting <input name="token" type="password" required .value=${token} autocomplete="off"></label>
        <p class="t-bad" role="alert">${said}</p>
        <footer><button type="button" class="quiet" @click=${() => root.close()}>Cancel</button><button class="primary" ?disabled=${busy}>${TITLES[given.action]}</button></footer>
      </form>`,
      root,
    );
  }

  draw();
  root.addEventListener("close", () => root.remove());
  root.showModal();
}

/** The silences in force; `lift` is offered where people may act. */
export function silences(found, context) {
  if (!found?.length) return nothing;
  return html`<section class="panel" aria-label="Silences"><header><h2>Silences in force <span class="badge">${found.length}</span></h2></header>
    <div class="scroll"><table><thead><tr><th scope="col">Rule</th><th scope="col">For</th><th scope="col">Who and why</th><th scope="col" class="num">Ends in</th><th></th></tr></thead>
    <tbody>${found.map((one) => html`<tr><td>${shown(one.rule, 60)}</td><td>${one.session_id ? html`session <span class="id">${shown(one.session_id, 48)}</span>` : `fleet ${shown(one.fleet, 60)}`}</td>
      <td>${one.who}: ${one.why}</td><td class="num">${left(one.until - context.freshness.now())}</td>
      <td class="num">${context.config.acting ? html`<button @click=${() => act({ action: "lift", silence_id: one.silence_id }, context)}>Lift</button>` : nothing}</td></tr>`)}</tbody></table></div></section>`;
}

function left(ms) {
  const minutes = Math.max(0, Math.round(ms / 60000));
  return minutes < 120 ? `${minutes} min` : minutes < 2880 ? `${Math.round(minutes / 60)} h` : `${Math.round(minutes / 1440)} d`;
}
