// One session: how it stands and why, its signals over the rounds, and everything that was found, commanded and answered.

import { html, render, nothing } from "/static/vendor/lit-html/lit-html.js";
import { act, silences } from "/static/act.js";
import { Charts } from "/static/charts.js";
import { gauge, stage, state } from "/static/fleet.js";
import { follow } from "/static/store.js";
import { clock, duration, number, plural, ratio, shown } from "/static/text.js";

const VIEWS = { story: "Last incident", recent: "Last 60", all: "All" };
const BEFORE = 15;
const AT_LEAST = 60;
const AT_MOST = 160;

/** The first and last round to show; null for all that are known. The last incident is shown with what came of it. */
function span({ rounds, marks }, view) {
  const last = rounds.round.at(-1) ?? 0;
  if (view === "all") return null;
  if (view === "recent") return [last - 60, last];
  const incident = marks.findLast((mark) => mark.kind === "incident");
  if (!incident) return [last - AT_MOST, last];
  const from = Math.floor(incident.x) - BEFORE;
  const over = Math.ceil(marks.at(-1).x) + BEFORE;
  return [from, Math.min(last, Math.max(over, from + AT_LEAST), from + AT_MOST)];
}

export function sessionPage(main, context) {
  const asked = context.filters();
  let document_ = null;
  let missing = false;
  let charts = null;
  let pointed = null;
  let view = "story";

  function look(how) {
    view = how;
    charts?.showSpan(span(document_, view));
    draw();
  }

  function draw() {
    render(body(), main);
    const root = main.querySelector(".charts");
    if (root && !charts) charts = new Charts(root, (index) => {
      pointed = index;
      drawReadout();
    });
    if (root && document_) {
      charts.span = span(document_, view);
      charts.show(document_);
    }
    drawReadout();
  }

  function drawReadout() {
    const target = main.querySelector(".readout");
    if (target && document_) render(readout(document_, pointed), target);
  }

  function body() {
    if (missing && !document_) {
      return html`<section class="panel"><h1>${shown(asked.get("session") ?? "")}</h1>
        <p class="none">No such session is known now: it was never seen, or it ended and its record was removed. What was found in it may still be under <a href="/incidents?q=${encodeURIComponent(asked.get("session") ?? "")}">Incidents</a>.</p></section>`;
    }
    if (!document_) return html`<p class="wait">Reading the session…</p>`;
    const { session, headline, incidents } = document_;
    return html`
      <nav class="crumbs" aria-label="Where you are"><a href="/">Fleet</a> <span aria-hidden="true">/</span>
        ${session.fleet ? html`<a href="/?fleet=${encodeURIComponent(session.fleet)}">${shown(session.fleet, 60)}</a> <span aria-hidden="true">/</span>` : nothing}
        <span>${shown(session.session_id, 80)}</span></nav>
      <section class="panel hero s-${session.condition}">
        <header><h1 class="id">${shown(session.session_id)}</h1>${state(session.condition)}
          <p class="soft">agent <span class="id">${shown(session.agent_id)}</span> · epoch ${session.epoch} · ${missing ? "its record was removed" : session.ended_at ? `ended ${clock(session.ended_at)}` : `last heard of ${clock(session.last_seen)}`}</p>
          <span class="grow"></span>${acts(document_, context)}${trace(document_.trace)}</header>
        <p class="headline">${headline}</p>
        ${document_.past ? html`<p class="t-warn" role="status">${document_.past}</p>` : nothing}
        ${figures(session, document_)}
      </section>
      <section class="panel" aria-label="Signals over the rounds">
        <header><h2>Signals over the rounds</h2>
          <div class="keys" role="group" aria-label="Rounds shown">${Object.entries(VIEWS).map(([key, name]) => html`<button aria-pressed=${view === key} @click=${() => look(key)}>${name}</button>`)}</div>
          <p class="readout" role="status" aria-live="off"></p></header>
        <div class="charts" role="img" aria-label=${describeChart(document_)}></div>
        ${keys(document_)}
        <details><summary>The rounds as a table</summary>${roundsTable(document_)}</details>
      </section>
      <div class="two uneven">
        <section class="panel" aria-label="The story"><header><h2>The story</h2><p class="soft">newest first</p></header>${storyList(document_)}</section>
        <div class="stack">
          ${incidents.length ? openIncidents(incidents, context) : nothing}
          ${silences(document_.silences, context)} ${forecastPanel(document_)} ${provenancePanel(document_.provenance)} ${factsPanel(document_.facts)} ${levelsPanel(document_.levels)}
          ${countsPanel(session.counts)}
        </div>
      </div>`;
  }

  const query = new URLSearchParams({ session: asked.get("session") ?? "", agent: asked.get("agent") ?? "" });
  const stop = follow(`/api/session/stream?${query}`, context.freshness, (message) => {
    if (!("document" in message)) return;
    missing = message.document === null;
    if (message.document) document_ = message.document;
    draw();
  });
  document.title = `${shown(asked.get("session") ?? "", 60)} – Leadline`;
  draw();
  return () => {
    stop();
    charts?.close();
  };
}

function acts({ session, incidents }, context) {
  if (!context.config.acting || session.ended_at) return nothing;
  const whose = { session_id: session.session_id, agent_id: session.agent_id };
  const open = (given) => act({ ...whose, ...given }, { config: context.config, rules: context.config.rules });
  const standing = incidents.filter((one) => one.command && !one.releasing);
  return html`<div class="acts">
    <button @click=${() => open({ action: "halt" })} ?disabled=${standing.some((one) => one.rule === "manual")}>Halt…</button>
    ${standing.map((one) => html`<button @click=${() => open({ action: "resume", rule: one.rule === "manual" ? "" : one.rule })}>Release from ${shown(one.rule, 40)}…</button>`)}
    <button @click=${() => open({ action: "silence" })}>Silence a rule…</button></div>`;
}

function trace(found) {
  if (!found) return nothing;
  if (!found.url) return html`<p class="soft">trace <code>${found.trace_id}</code></p>`;
  return html`<a class="button" href=${found.url} target="_blank" rel="noopener noreferrer">Open the trace</a>`;
}

function figures(session, { thresholds }) {
  const { now } = session;
  if (!now) return html`<p class="none">Nothing was measured yet.</p>`;
  const figure = (name, value, more) => html`<div><dt>${name}</dt><dd>${value}</dd><dd class="soft">${more}</dd></div>`;
  return html`<dl class="figures">
    ${figure("raw ratio", gauge(now.raw_ratio), `floor ${ratio(thresholds.raw_ratio_floor)}, ${number(now.raw_tokens)} raw of ${number(now.raw_tokens + now.summary_tokens)} tokens`)}
    ${figure("source spans", number(now.distinct_source_spans), `floor ${number(thresholds.span_floor)}, ${number(session.baseline_spans)} at the start`)}
    ${figure("query cosine", ratio(now.query_cosine_retained), session.penalizes_depth ? "the scorer penalizes depth" : "mean salience of what is retained")}
    ${figure("summary depth", number(now.summary_depth_max), `limit ${number(session.max_depth)}${session.depth_cap ? `, capped at ${session.depth_cap}` : ""}${session.pinned_rounds ? `, at it for ${plural(session.pinned_rounds, "round")}` : ""}`)}
    ${figure("round", number(session.last_round), `${plural(session.opened, "incident")} so far`)}
    ${figure("budget", number(session.token_budget), session.eviction ? `${session.eviction} eviction` : "eviction not stated")}
  </dl>`;
}

function readout({ rounds, marks }, index) {
  if (index === null || index === undefined) return html`Point at a round to read it. Drag to zoom in, double-click to zoom out.`;
  const round = rounds.round[index];
  const here = marks.filter((mark) => mark.x >= round && mark.x < round + 1).map((mark) => mark.label);
  return html`<strong>round ${number(round)}</strong> · raw ratio ${ratio(rounds.raw_ratio[index])} · ${number(rounds.spans[index])} spans · cosine ${ratio(rounds.cosine[index])} · depth ${rounds.depth[index]}${here.length ? ` · ${shown(here.join(", "), 120)}` : ""}`;
}

function describeChart({ rounds, thresholds, marks }) {
  const count = rounds.round.length;
  if (!count) return "No round is known yet.";
  const happened = marks.map((mark) => `${mark.label} at round ${Math.floor(mark.x)}`).slice(-40).join("; ");
  return `Raw ratio, spans, cosine and depth over ${plural(count, "round")}. Raw ratio now ${ratio(rounds.raw_ratio.at(-1))}, floor ${ratio(thresholds.raw_ratio_floor)}. ${shown(happened, 3000)}`;
}

function keys({ forecast }) {
  return html`<ul class="legend" aria-label="Marks">
    <li><i class="line floor"></i>floor</li><li><i class="line exit"></i>exit level</li>
    ${forecast.length ? html`<li><i class="line ahead"></i>forecast</li>` : nothing}
    <li><i class="mark incident"></i>incident opened</li><li><i class="mark command"></i>command</li><li><i class="mark ack"></i>acknowledgement</li><li><i class="mark release"></i>release</li><li><i class="band"></i>held</li>
  </ul>`;
}

function roundsTable({ rounds }) {
  const last = rounds.round.map((_, index) => index).slice(-200).reverse();
  return html`<div class="scroll tall" tabindex="0" role="region" aria-label="Rounds"><table>
    <thead><tr>${["Round", "Raw ratio", "Spans", "Cosine", "Depth", "Raw tokens", "Summary tokens"].map((name) => html`<th scope="col" class="num">${name}</th>`)}<th scope="col">Trigger</th></tr></thead>
    <tbody>${last.map((n) => html`<tr><td class="num">${rounds.round[n]}</td><td class="num">${ratio(rounds.raw_ratio[n])}</td><td class="num">${number(rounds.spans[n])}</td><td class="num">${ratio(rounds.cosine[n])}</td><td class="num">${rounds.depth[n]}</td><td class="num">${number(rounds.raw_tokens[n])}</td><td class="num">${number(rounds.summary_tokens[n])}</td><td>${rounds.trigger[n]}</td></tr>`)}</tbody>
  </table></div>`;
}

function storyList({ story, complete }) {
  if (!story.length) return html`<p class="none">${complete ? "Nothing has happened yet that is worth telling." : "Looking back…"}</p>`;
  const last = story.slice(-80).reverse();
  return html`<ol class="story" reversed>${last.map((entry) => html`<li class="t-${entry.tone}">
      <p class="when"><time>${clock(entry.at)}</time>${entry.round === null ? nothing : html` · round ${number(entry.round)}`} · ${shown(entry.kind, 40)}</p><p>${entry.text}</p></li>`)}</ol>
    ${story.length > last.length ? html`<p class="more">and ${number(story.length - last.length)} earlier entries</p>` : nothing}`;
}

function openIncidents(incidents, context) {
  return html`<section class="panel" aria-label="Open incidents"><header><h2>Open incidents <span class="badge">${incidents.length}</span></h2></header>
    <ul class="cards">${incidents.map((one) => html`<li>
      <p><strong>${shown(one.rule, 60)}</strong>${one.subject ? html` <span class="soft">${shown(one.subject, 60)}</span>` : nothing}${one.mode === "enforce" ? nothing : html` <span class="tag">${one.mode}</span>`} <span class="soft">since round ${number(one.opened_round)}, ${duration(context.freshness.now() - one.opened_at)}; fired ${plural(one.firings, "time")}</span></p>
      ${one.command ? html`<p>${one.command.kind}${one.command.attempt > 1 ? ` (attempt ${one.command.attempt})` : ""} ${stage(one.command.stage)} <span class="soft">${duration(context.freshness.now() - one.command.issued_at)} ago</span></p>` : html`<p class="soft">nothing was commanded</p>`}
    </li>`)}</ul></section>`;
}

function forecastPanel({ forecast, thresholds }) {
  const names = { raw_ratio: "The raw ratio", spans: "The source spans" };
  return html`<section class="panel" aria-label="Forecast"><header><h2>Forecast</h2></header>
    ${forecast.length ? forecast.map((each) => html`<p>${names[each.what]} reach${each.what === "spans" ? "" : "es"} ${each.what === "spans" ? "their" : "its"} floor (${each.what === "spans" ? number(each.floor) : ratio(each.floor)}) in about <strong>${plural(each.rounds, "round")}</strong> <span class="soft">(90 %: ${each.earliest} to ${each.latest ?? "maybe never"})</span>.</p>`)
      : html`<p class="none">Neither the raw ratio (floor ${ratio(thresholds.raw_ratio_floor)}) nor the source spans (floor ${number(thresholds.span_floor)}) are falling steadily.</p>`}
  </section>`;
}

function provenancePanel(provenance) {
  if (!provenance) return html`<section class="panel" aria-label="Provenance"><header><h2>Provenance</h2></header><p class="none">The agent lists no summaries in its rounds.</p></section>`;
  return html`<section class="panel" aria-label="Provenance"><header><h2>Provenance</h2><p class="soft">summaries retained at round ${number(provenance.round)}</p></header>
    ${provenance.ungrounded ? html`<p class="t-bad">${plural(provenance.ungrounded, "summary has", "summaries have")} no source left.</p>` : nothing}
    <table><thead><tr><th scope="col">Depth</th><th scope="col" class="num">Summaries</th><th scope="col" class="num">Tokens</th><th scope="col" class="num">Mean fan-out</th><th scope="col" class="num">Ungrounded</th></tr></thead>
      <tbody>${provenance.by_depth.map((row) => html`<tr><td>${row.depth}</td><td class="num">${number(row.summaries)}</td><td class="num">${number(row.tokens)}</td><td class="num">${row.fan_out.toFixed(1)}</td><td class="num ${row.ungrounded ? "late" : ""}">${number(row.ungrounded)}</td></tr>`)}</tbody></table>
    <details><summary>Each summary</summary><div class="scroll tall" tabindex="0" role="region" aria-label="Summaries"><table><thead><tr><th scope="col">Summary</th><th scope="col" class="num">Depth</th><th scope="col" class="num">Tokens</th><th scope="col" class="num">Fan-out</th><th scope="col" class="num">Sources</th></tr></thead>
      <tbody>${provenance.listed.map((item) => html`<tr><td class="id">${item.id}</td><td class="num">${item.depth}</td><td class="num">${number(item.tokens)}</td><td class="num">${number(item.fan_out ?? 0)}</td><td class="num ${item.reachable === 0 ? "late" : ""}">${item.reachable === 0 ? "none" : number(item.reachable)}</td></tr>`)}</tbody></table></div>${provenance.more ? html`<p class="more">and ${number(provenance.more)} more</p>` : nothing}</details>
  </section>`;
}

function factsPanel(facts) {
  if (!facts.length) return nothing;
  const lost = facts.filter((fact) => fact.lost_level !== null && !fact.excused).length;
  return html`<section class="panel" aria-label="Facts"><header><h2>Facts <span class="badge">${facts.length}</span></h2><p class="soft">${lost ? `${lost} lost` : "none lost"}</p></header>
    <div class="scroll tall" tabindex="0" role="region" aria-label="Facts"><table><thead><tr><th scope="col">Fact</th><th scope="col">Class</th><th scope="col" class="num">Kept at</th><th scope="col" class="num">Lost at</th></tr></thead>
      <tbody>${facts.map((fact) => html`<tr><td class="id">${fact.fact_id}</td><td>${fact.fact_class}</td><td class="num">${fact.kept_level === null ? "–" : `level ${fact.kept_level}`}</td>
        <td class="num ${fact.lost_level !== null && !fact.excused ? "late" : ""}">${fact.excused ? html`<span class="soft">${fact.excused}</span>` : fact.lost_level === null ? "–" : `level ${fact.lost_level}`}</td></tr>`)}</tbody></table></div></section>`;
}

function levelsPanel(levels) {
  if (!levels.length) return nothing;
  const of = (part, whole) => (part === null || whole === null ? "–" : `${number(part)} of ${number(whole)}`);
  return html`<section class="panel" aria-label="Summarizer calls"><header><h2>Last summarizer call of each level</h2></header>
    <div class="scroll"><table><thead><tr><th scope="col">Level</th><th scope="col" class="num">Input consumed</th><th scope="col" class="num">Spans seen</th><th scope="col" class="num">Facts kept</th><th scope="col" class="num">Output</th></tr></thead>
      <tbody>${levels.map((level) => html`<tr><td>${level.level}</td>
        <td class="num ${level.consumed !== null && level.declared !== null && level.consumed < level.declared ? "late" : ""}">${of(level.consumed, level.declared)}</td>
        <td class="num ${level.seen_spans !== null && level.source_spans !== null && level.seen_spans < level.source_spans ? "late" : ""}">${of(level.seen_spans, level.source_spans)}</td>
        <td class="num">${of(level.facts_kept, level.facts)}</td><td class="num">${number(level.output_tokens)}</td></tr>`)}</tbody></table></div></section>`;
}

function countsPanel(counts) {
  const names = Object.entries(counts);
  if (!names.length) return nothing;
  return html`<section class="panel" aria-label="Order of events"><header><h2>Order of events</h2></header>
    <ul class="inline">${names.map(([name, count]) => html`<li>${name.replaceAll("_", " ")} <strong>${number(count)}</strong></li>`)}</ul></section>`;
}
