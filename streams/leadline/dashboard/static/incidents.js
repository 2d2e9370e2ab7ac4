// Violations and commands as they were published: searchable, with reasons.

import { html, render, nothing } from "/static/vendor/lit-html/lit-html.js";
import { repeat } from "/static/vendor/lit-html/directives/repeat.js";
import { signIn } from "/static/store.js";
import { clock, duration, number, sessionLink, shown } from "/static/text.js";

const EVERY_MS = 2000;
const WHAT = { violations: "Incidents", commands: "Commands" };

export function incidentsPage(main, context) {
  let found = [];
  let kept = 0;
  let failed = "";
  let asked = 0;
  const what = () => (context.filters().get("what") === "commands" ? "commands" : "violations");

  async function ask() {
    const filters = context.filters();
    const query = new URLSearchParams({ limit: "200" });
    for (const name of ["q", "rule", "fleet"]) if (filters.get(name)) query.set(name, filters.get(name));
    const number_ = ++asked;
    try {
      const response = await fetch(`/api/${what()}?${query}`);
      if (response.status === 401) return signIn();
      const answer = await response.json();
      if (number_ !== asked) return; // Overtaken by a later question.
      context.freshness.take(answer.reading);
      found = answer[what()];
      kept = answer.kept;
      failed = "";
    } catch {
      context.freshness.connected = false;
      failed = "The dashboard does not answer.";
    }
    draw();
  }

  function set(name, value) {
    context.setFilter(name, value);
    if (name === "what") found = [];
    draw();
    ask();
  }

  function draw() {
    const filters = context.filters();
    const now = what();
    render(
      html`
        <h1>Incidents and commands</h1>
        <form class="filters" role="search" @submit=${(event) => event.preventDefault()}>
          <div class="keys" role="group" aria-label="What to list">
            ${Object.entries(WHAT).map(([key, name]) => html`<button type="button" aria-pressed=${now === key} @click=${() => set("what", key === "commands" ? key : "")}>${name}</button>`)}
          </div>
          <label class="grow">Search <input type="search" .value=${filters.get("q") ?? ""} @input=${(event) => set("q", event.target.value)} placeholder="rule, session, agent, fleet, or words of the reason"></label>
          ${filters.get("rule") ? html`<button type="button" class="quiet" @click=${() => set("rule", "")}>rule ${shown(filters.get("rule"), 40)} ✕</button>` : nothing}
          ${filters.get("fleet") ? html`<button type="button" class="quiet" @click=${() => set("fleet", "")}>fleet ${shown(filters.get("fleet"), 40)} ✕</button>` : nothing}
        </form>
        <section class="panel" aria-label=${WHAT[now]}>
          <header><h2>${WHAT[now]} <span class="badge">${number(found.length)}</span></h2><p class="soft">newest first, of the last ${number(kept)}</p></header>
          ${failed ? html`<p class="t-bad" role="alert">${failed}</p>` : nothing}
          ${found.length ? html`<ul class="records">${repeat(found, (one) => one.command_id ?? one.violation_id, now === "commands" ? command : violation)}</ul>` : html`<p class="none">${filters.get("q") ? "Nothing matches." : "Nothing yet."}</p>`}
        </section>`,
      main,
    );
  }

  document.title = "Incidents – Leadline";
  draw();
  ask();
  const timer = setInterval(ask, EVERY_MS);
  return () => {
    clearInterval(timer);
    asked++;
  };
}

function whose(one) {
  return html`<a class="id" href=${sessionLink(one.session_id, one.agent_id)}>${shown(one.session_id, 80)}</a> <span class="soft">${shown(one.agent_id, 60)}${one.fleet ? ` · ${shown(one.fleet, 60)}` : ""}</span>`;
}

export function violation(one) {
  return html`<li class="v-${one.severity}">
    <p class="when"><time>${clock(one.at)}</time> · <strong>${shown(one.rule, 60)}</strong> · ${one.severity}${one.round === undefined ? "" : ` · round ${number(one.round)}`}${one.level === undefined ? "" : ` · level ${one.level}`}
      ${one.mode === "enforce" ? nothing : html`<span class="tag">${one.mode}</span>`} ${one.action === "none" ? nothing : html`<span class="tag act">${one.mode === "enforce" ? "" : "would "}${one.action}</span>`}${one.verdict_ms === undefined ? nothing : html` <span class="soft">verdict in ${duration(one.verdict_ms)}</span>`}</p>
    <p>${one.message}</p><p>${whose(one)}</p></li>`;
}

function command(one) {
  return html`<li class="c-${one.kind}">
    <p class="when"><time>${clock(one.at)}</time> · <strong>${one.kind}</strong> for ${shown(one.rule, 60)}${one.attempt > 1 ? html` <span class="tag">attempt ${one.attempt}</span>` : nothing} <span class="soft">seq ${one.seq}</span></p>
    <p>${one.reason}</p><p>${whose(one)}</p></li>`;
}
