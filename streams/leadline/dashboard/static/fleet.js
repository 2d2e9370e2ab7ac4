// The fleet: counts by state, the heat strip, incidents and commands in flight, and the sessions in words.

import { html, render, nothing } from "/static/vendor/lit-html/lit-html.js";
import { repeat } from "/static/vendor/lit-html/directives/repeat.js";
import { CALM, Fleet, IN_FLIGHT, OPEN, ROW, WHO, compare, first, follow } from "/static/store.js";
import { act, silences } from "/static/act.js";
import { Strip, told } from "/static/strip.js";
import { clock, duration, number, plural, ratio, sessionLink, shown } from "/static/text.js";

// Always shown, in this order; others when there are any.
const STATES = ["healthy", "eroding", "drift", "inverted", "pinned", "truncating", "unobserved", "halted", "recovering"];
const SHOWN = { rules: 5, incidents: 12, commands: 12, sessions: 60 };
const FIRST_ROWS = 20;

export function fleetPage(main, context) {
  const fleet = new Fleet();
  let by = context.filters().get("color") === "ratio" ? "ratio" : "state";
  let strip = null;
  let pointed = null;
  let frame = 0;
  let stale = false;
  let entries = [];
  let openNow = [];
  let left = [];
  let rows = FIRST_ROWS;

  // A part of the page a frame, so that the browser can answer to somebody between them.
  const PARTS = [drawHead, drawStrip, drawPanels, drawSessions];

  function schedule() {
    stale = true;
    if (!frame) frame = requestAnimationFrame(step);
  }

  function step() {
    frame = 0;
    if (!left.length) {
      if (!stale) return;
      stale = false;
      left = [...PARTS];
    }
    left.shift()();
    if (left.length || stale) frame = requestAnimationFrame(step);
  }

  const set = (name, value) => {
    context.setFilter(name, value);
    left = [];
    schedule();
  };
  const open = ({ who }) => context.go(sessionLink(who[WHO.session], who[WHO.agent]));

  function drawHead() {
    const filters = context.filters();
    const { found, counts } = fleet.matching(filters);
    entries = found;
    openNow = incidentsOf(entries);
    render(
      html`
        <h1 class="hidden">Fleet</h1>
        ${watched(fleet.timings?.monitor, context)} ${filterBar(fleet, filters, set, context)}
        <section class="states" aria-label="Sessions by state">
          ${repeat(tiles(counts), ([word]) => word, ([word, count]) => tile(word, count, filters.get("state") === word, set))}
        </section>
        <section class="panel strip" aria-label="All sessions">
          <header>
            <h2>${plural(entries.length, "session")}</h2>
            <div class="keys" role="group" aria-label="Colour of the cells">
              <button aria-pressed=${by === "state"} @click=${() => paint("state")}>State</button>
              <button aria-pressed=${by === "ratio"} @click=${() => paint("ratio")}>Raw ratio</button>
            </div>
            ${by === "ratio" ? ramp() : nothing}
            <p class="pointed" role="status"></p>
          </header>
          <div class="cells">
            <canvas tabindex="0" role="application" aria-roledescription="heat strip"
              aria-label="${plural(entries.length, "session")}, a cell each, grouped by fleet. Arrow keys, Home and End move, Enter opens. The table below says the same."></canvas>
          </div>
          ${fleet.loaded && !entries.length ? html`<p class="none">${fleet.size ? "No session matches the filters." : "No session is known yet: start an agent that reports, or wait for the monitor."}</p>` : nothing}
        </section>
        <div class="panels"></div>
        <section class="panel sessions" aria-label="Sessions"></section>
      `,
      main,
    );
    if (!pointed) drawPointed();
  }

  /**
   * At once when another cell is pointed at: who goes on with the keyboard must have been told of the right one. And only then: a
   * screen reader reads it out each time it changes.
   */
  function drawPointed() {
    render(pointed ? told(pointed) : entries.length ? "Point at a cell, or focus the strip and use the arrow keys." : "", main.querySelector(".pointed"));
  }

  function drawStrip() {
    if (!strip) strip = new Strip(main.querySelector("canvas"), open, (entry) => {
      pointed = entry;
      drawPointed();
    });
    strip.show(entries, by);
  }

  function drawPanels() {
    const underway = openNow.filter(({ one }) => IN_FLIGHT.has(one[OPEN.stage]));
    render(
      html`<div class="two">${incidentPanel(openNow, context)} ${commandPanel(underway, fleet.timings, context)}</div>
        ${silences(fleet.timings?.silences, context)}`,
      main.querySelector(".panels"),
    );
  }

  function drawSessions() {
    render(sessionTable(entries, rows, context), main.querySelector("section.sessions"));
    if (rows >= SHOWN.sessions || entries.length <= rows) return;
    // The first rows now, the rest in the next frames.
    rows += FIRST_ROWS;
    left.push(drawSessions);
  }

  function paint(how) {
    by = how;
    set("color", how === "ratio" ? "ratio" : "");
  }

  const stop = follow("/api/stream", context.freshness, (message) => {
    fleet.take(message);
    if (!fleet.coming) schedule();
  });
  document.title = "Leadline";
  for (const part of PARTS) part();
  return () => {
    stop();
    cancelAnimationFrame(frame);
    strip?.close();
  };
}

/** Where nobody judges, everything looks as it did: that must be said before anything else. */
function watched(monitor, context) {
  if (!monitor?.silent) return nothing;
  // Only what stays the same is an alert: one whose words change is read out each time.
  return html`<div class="alarm"><p role="alert">No monitor watches ${monitor.silent === monitor.partitions ? "this fleet" : `${monitor.silent} of ${monitor.partitions} partitions`}. What you see is how it was then.</p>
    <p>The last sign of life came ${duration(context.freshness.now() - monitor.since)} ago.</p></div>`;
}

function tiles(counts) {
  const others = [...counts].filter(([word, count]) => count && !STATES.includes(word));
  return [...STATES.map((word) => [word, counts.get(word) ?? 0]), ...others];
}

function tile(word, count, pressed, set) {
  return html`<button class="tile s-${word} ${count ? "" : "zero"}" aria-pressed=${pressed} @click=${() => set("state", pressed ? "" : word)}>
    <span class="count">${number(count)}</span><span class="word">${word}</span>
  </button>`;
}

function filterBar(fleet, filters, set, context) {
  const chosen = (name) => filters.get(name) ?? "";
  const options = (values, now) => html`<option value="" ?selected=${!now}>all</option>
    ${[...new Set([...values, ...(now ? [now] : [])])].map((value) => html`<option value=${value} ?selected=${value === now}>${shown(value, 60) || "no fleet"}</option>`)}`;
  const silence = () => act({ action: "silence", fleet: chosen("fleet") }, { config: context.config, rules: fleet.rules, fleets: fleet.fleets().filter(Boolean) });
  const any = ["fleet", "state", "rule", "agent", "q"].some((name) => chosen(name));
  const clear = () => ["fleet", "state", "rule", "agent", "q"].forEach((name) => set(name, ""));
  return html`<form class="filters" role="search" aria-label="Filter sessions" @submit=${(event) => event.preventDefault()}>
    <label>Fleet <select name="fleet" @change=${(event) => set("fleet", event.target.value)}>${options(fleet.fleets().filter(Boolean), chosen("fleet"))}</select></label>
    <label>State <select name="state" @change=${(event) => set("state", event.target.value)}>${options(fleet.conditions, chosen("state"))}</select></label>
    <label>Rule <select name="rule" @change=${(event) => set("rule", event.target.value)}>${options(fleet.rules, chosen("rule"))}</select></label>
    <label>Agent <input name="agent" type="search" .value=${chosen("agent")} @input=${(event) => set("agent", event.target.value)} placeholder="any"></label>
    <label>Session <input name="q" type="search" .value=${chosen("q")} @input=${(event) => set("q", event.target.value)} placeholder="part of an id"></label>
    ${any ? html`<button type="button" class="quiet" @click=${clear}>Clear filters</button>` : nothing}
    ${context.config.acting && fleet.fleets().some(Boolean) ? html`<span class="grow"></span><button type="button" @click=${() => silence()}>Silence a rule…</button>` : nothing}
  </form>`;
}

function ramp() {
  const steps = ["below 0.25", "to 0.30", "to 0.50", "to 0.75", "above"];
  return html`<ul class="ramp" aria-label="Raw ratio">${steps.map((step, n) => html`<li class="r${n}">${step}</li>`)}</ul>`;
}

function incidentsOf(entries) {
  const found = [];
  for (const { who, row, word } of entries) for (const one of row[ROW.open]) found.push({ who, row, word, one });
  return found.sort((one, other) => other.one[OPEN.openedAt] - one.one[OPEN.openedAt]);
}

function incidentPanel(found, context) {
  const now = context.freshness.now();
  const rules = new Map();
  for (const { one } of found) rules.set(one[OPEN.rule], (rules.get(one[OPEN.rule]) ?? 0) + 1);
  return html`<section class="panel" aria-label="Incidents now">
    <header><h2>Incidents now <span class="badge">${number(found.length)}</span></h2>
      <p class="soft">${[...rules].sort((a, b) => b[1] - a[1]).slice(0, SHOWN.rules).map(([rule, count]) => `${rule} ${count}`).join(" · ")}${rules.size > SHOWN.rules ? ` · and ${plural(rules.size - SHOWN.rules, "more rule")}` : ""}</p></header>
    ${found.length ? html`<div class="scroll"><table>
      <thead><tr><th scope="col">Rule</th><th scope="col">Session</th><th scope="col" class="num">Since</th><th scope="col" class="wide">Command</th></tr></thead>
      <tbody>${repeat(found.slice(0, SHOWN.incidents), ({ one }) => one[OPEN.id], ({ who, one, word }) => html`<tr>
        <td><span class="swatch s-${word}"></span>${shown(one[OPEN.rule])}${one[OPEN.subject] && one[OPEN.subject] !== "silence" ? html` <span class="soft">${shown(one[OPEN.subject], 40)}</span>` : nothing}${one[OPEN.mode] === "enforce" ? nothing : html` <span class="tag">${one[OPEN.mode]}</span>`}</td>
        <td class="id"><a href=${sessionLink(who[WHO.session], who[WHO.agent])}>${shown(who[WHO.session], 48)}</a></td>
        <td class="num" title=${clock(one[OPEN.openedAt])}>${duration(now - one[OPEN.openedAt])}</td>
        <td class="wide">${one[OPEN.kind] ? html`${one[OPEN.kind]} <span class="soft">${one[OPEN.stage]}</span>` : html`<span class="soft">none</span>`}</td>
      </tr>`)}</tbody></table></div>${more(found.length, SHOWN.incidents)}` : html`<p class="none">No incident is open.</p>`}
  </section>`;
}

function commandPanel(found, timings, context) {
  const now = context.freshness.now();
  const oldest = first(found, SHOWN.commands, (one, other) => compare(one.one[OPEN.issuedAt], other.one[OPEN.issuedAt]));
  return html`<section class="panel" aria-label="Commands in flight">
    <header><h2>Commands in flight <span class="badge">${number(found.length)}</span></h2>${timingsLine(timings)}</header>
    ${oldest.length ? html`<div class="scroll"><table>
      <thead><tr><th scope="col">Command</th><th scope="col">Session</th><th scope="col">Stage</th><th scope="col" class="num">Age</th></tr></thead>
      <tbody>${repeat(oldest, ({ one }) => one[OPEN.id], ({ who, one }) => html`<tr>
        <td>${one[OPEN.kind]}${one[OPEN.attempt] > 1 ? html` <span class="tag">attempt ${one[OPEN.attempt]}</span>` : nothing}</td>
        <td class="id"><a href=${sessionLink(who[WHO.session], who[WHO.agent])}>${shown(who[WHO.session], 48)}</a></td>
        <td>${stage(one[OPEN.stage])}</td>
        <td class="num ${now - one[OPEN.issuedAt] > 60000 ? "late" : ""}" title=${clock(one[OPEN.issuedAt])}>${duration(now - one[OPEN.issuedAt])}</td>
      </tr>`)}</tbody></table></div>${more(found.length, SHOWN.commands)}` : html`<p class="none">No command is waiting to be heeded.</p>`}
  </section>`;
}

function timingsLine(timings) {
  const verdict = timings?.time_to_verdict_ms;
  const release = timings?.time_to_release_ms;
  return html`<dl class="times">
    <div><dt>Time to verdict</dt><dd>${verdict?.of ? html`${duration(verdict.p50)} <span class="soft">p50</span> ${duration(verdict.p99)} <span class="soft">p99</span>` : "–"}</dd></div>
    <div><dt>Verdict to release</dt><dd>${release?.of ? html`${duration(release.p50)} <span class="soft">p50</span> ${duration(release.p99)} <span class="soft">p99</span>` : "–"}</dd></div>
  </dl>`;
}

const STAGES = ["issued", "accepted", "effective"];

export function stage(now) {
  const reached = STAGES.indexOf(now);
  return html`<span class="stage" title=${now}>${STAGES.map((name, n) => html`<i class=${n <= reached ? "on" : ""}></i>`)} ${now}</span>`;
}

/** What of a session does not change from round to round, made once. */
function said(entry) {
  const { who } = entry;
  entry.said ??= {
    link: sessionLink(who[WHO.session], who[WHO.agent]), session: shown(who[WHO.session], 60), agent: shown(who[WHO.agent], 40), fleet: shown(who[WHO.fleet], 40),
  };
  return entry.said;
}

function graver(one, other) {
  return CALM.has(one.word) - CALM.has(other.word) || one.row[ROW.condition] - other.row[ROW.condition] || compare(one.who[WHO.session], other.who[WHO.session]);
}

function sessionTable(entries, most, context) {
  const now = context.freshness.now();
  return html`<header><h2>Sessions</h2><p class="soft">the troubled ones first</p></header>
    <div class="scroll"><table class="sessions">
      <thead><tr><th scope="col">Session</th><th scope="col" class="wide">Agent</th><th scope="col" class="wide">Fleet</th><th scope="col">State</th><th scope="col">Raw ratio</th><th scope="col" class="num">Spans</th><th scope="col" class="num wide">Depth</th><th scope="col" class="num wide">Round</th><th scope="col" class="wide">Open</th><th scope="col" class="num">Seen</th></tr></thead>
      <tbody>${repeat(first(entries, most, graver), ({ who }) => who[WHO.slot], (entry) => sessionRow(entry, now))}</tbody></table></div>${more(entries.length, SHOWN.sessions)}`;
}

function sessionRow(entry, now) {
  const { row, word } = entry;
  const { link, session, agent, fleet } = said(entry);
  return html`<tr>
        <td class="id"><a href=${link}>${session}</a></td>
        <td class="id wide">${agent}</td><td class="wide">${fleet}</td>
        <td>${state(word)}</td><td class="ratio">${gauge(row[ROW.ratio])}</td>
        <td class="num">${number(row[ROW.spans])}</td><td class="num wide">${row[ROW.depth] ?? "?"}</td><td class="num wide">${number(row[ROW.round])}</td>
        <td class="wide">${row[ROW.open].length ? [...new Set(row[ROW.open].map((one) => shown(one[OPEN.rule], 40)))].join(", ") : ""}</td>
        <td class="num soft">${duration(now - row[ROW.seen])}</td>
      </tr>`;
}

export function state(word) {
  return html`<span class="state s-${word}"><span class="swatch"></span>${word}</span>`;
}

export function gauge(value) {
  if (value === null || value === undefined) return "?";
  return html`<meter min="0" max="1" low="0.25" high="0.5" optimum="1" .value=${value} aria-label="raw ratio ${ratio(value)}"></meter> <span>${ratio(value)}</span>`;
}

function more(count, limit) {
  return count > limit ? html`<p class="more">and ${number(count - limit)} more; filter to see them</p>` : nothing;
}
