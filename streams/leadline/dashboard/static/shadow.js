// What enforcement would have done: the incidents of rules that run in shadow.

import { html, render, nothing } from "/static/vendor/lit-html/lit-html.js";
import { violation } from "/static/incidents.js";
import { signIn } from "/static/store.js";
import { clock, number, plural, shown } from "/static/text.js";

const EVERY_MS = 3000;

export function shadowPage(main, context) {
  let report = null;
  let open = true;

  async function ask() {
    try {
      const response = await fetch("/api/shadow");
      if (response.status === 401) return signIn();
      const answer = await response.json();
      if (!open) return;
      context.freshness.take(answer.reading);
      report = answer;
      draw();
    } catch {
      context.freshness.connected = false;
    }
  }

  function draw() {
    render(
      html`
        <h1>Shadow report</h1>
        <p class="lead">What enforcement would have done, for the rules that run in <code>shadow</code>. Nothing of this was commanded.</p>
        ${report ? body(report) : html`<p class="wait">Reading…</p>`}`,
      main,
    );
  }

  document.title = "Shadow report – Leadline";
  draw();
  ask();
  const timer = setInterval(ask, EVERY_MS);
  return () => {
    open = false;
    clearInterval(timer);
  };
}

function body(report) {
  if (!report.rows.length) {
    return html`<section class="panel"><p class="none">None of the last ${number(report.considered)} incidents is of a rule in shadow. Set a rule's mode to <code>shadow</code> in the policy to try it without consequences.</p></section>`;
  }
  const actions = Object.entries(report.actions);
  return html`
    <section class="states" aria-label="In numbers">
      <div class="tile"><span class="count">${number(report.incidents)}</span><span class="word">incidents in shadow</span></div>
      <div class="tile"><span class="count">${number(report.sessions)}</span><span class="word">sessions</span></div>
      ${actions.map(([action, count]) => html`<div class="tile s-halted"><span class="count">${number(count)}</span><span class="word">would have been ${action}</span></div>`)}
    </section>
    <section class="panel" aria-label="By rule"><header><h2>By rule and fleet</h2><p class="soft">since ${clock(report.since)}</p></header>
      <div class="scroll"><table><thead><tr><th scope="col">Rule</th><th scope="col">Fleet</th><th scope="col">Would do</th><th scope="col" class="num">Incidents</th><th scope="col" class="num">Sessions</th><th scope="col" class="num">Last</th></tr></thead>
        <tbody>${report.rows.map((row) => html`<tr><td><a href="/incidents?rule=${encodeURIComponent(row.rule)}">${shown(row.rule, 60)}</a></td><td>${shown(row.fleet, 60)}</td><td>${row.action === "none" ? html`<span class="soft">nothing: it only tells</span>` : html`<span class="tag act">${row.action}</span>`}</td><td class="num">${number(row.incidents)}</td><td class="num">${number(row.sessions)}</td><td class="num">${clock(row.last_at)}</td></tr>`)}</tbody></table></div></section>
    <section class="panel" aria-label="Examples"><header><h2>The latest of each</h2><p class="soft">${plural(report.rows.length, "kind")}</p></header><ul class="records">${report.rows.map((row) => violation(row.example))}</ul></section>`;
}
