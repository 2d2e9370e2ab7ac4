// The frame around the pages: where we are, how old the data is, light or dark.

import { html, render, nothing } from "/static/vendor/lit-html/lit-html.js";
import { Freshness, signIn } from "/static/store.js";
import { duration, plural } from "/static/text.js";
import { fleetPage } from "/static/fleet.js";
import { sessionPage } from "/static/session.js";
import { incidentsPage } from "/static/incidents.js";
import { shadowPage } from "/static/shadow.js";

const PAGES = { "/": fleetPage, "/session": sessionPage, "/incidents": incidentsPage, "/shadow": shadowPage };
const LINKS = [["/", "Fleet"], ["/incidents", "Incidents"], ["/shadow", "Shadow report"]];
const STALE_MS = 5000;
// Asking for anything renews the sign-in; a stream that stays open asks for nothing.
const ASK_MS = 1800000;

const frame = document.getElementById("top");
const main = document.getElementById("main");
const freshness = new Freshness();
let config = { acting: false, user: "", version: "", rules: [] };
let leave = () => {};
main.textContent = "";

/** Everything a page is given: `filters` live in the address. */
const context = {
  freshness,
  get config() {
    return config;
  },
  filters: () => new URLSearchParams(location.search),
  setFilter(name, value) {
    const filters = new URLSearchParams(location.search);
    if (value) filters.set(name, value);
    else filters.delete(name);
    const query = filters.toString();
    history.replaceState(null, "", location.pathname + (query ? `?${query}` : ""));
  },
  go,
};

function go(address) {
  history.pushState(null, "", address);
  open();
  main.focus({ preventScroll: true });
  window.scrollTo(0, 0);
}

function open() {
  leave();
  const page = PAGES[location.pathname] ?? fleetPage;
  render(nothing, main);
  leave = page(main, context) ?? (() => {});
  drawFrame();
}

function drawFrame() {
  const { reading } = freshness;
  const { tone, text } = said(reading);
  render(
    html`
      <a class="brand" href="/"><img src="/static/icon.svg" alt="" width="28" height="28"><span>Leadline</span></a>
      <nav aria-label="Pages">
        ${LINKS.map(([path, name]) => html`<a href=${path} aria-current=${location.pathname === path ? "page" : "false"}>${name}</a>`)}
      </nav>
      <p class="age ${tone}" role="status" aria-live="off" title="How old what you see is"><span class="dot"></span>${text}</p>
      <button class="quiet" @click=${turn} aria-label="Switch between light and dark" title="Light or dark">◐</button>
    `,
    frame,
  );
}

function said(reading) {
  if (!reading) return { tone: "warn", text: "connecting" };
  if (!freshness.connected) return { tone: "bad", text: `no connection, data ${duration(freshness.age())} old` };
  if (reading.as_of === null) return { tone: "warn", text: `reading the state: ${Math.round(reading.restored * 100)} %` };
  const age = freshness.age();
  if (reading.error) return { tone: "bad", text: `${reading.error}, data ${duration(age)} old` };
  if (age > STALE_MS) return { tone: "warn", text: `data ${duration(age)} old${reading.behind ? `, ${plural(reading.behind, "record")} behind` : ""}` };
  return { tone: "good", text: `live, data ${duration(age)} old` };
}

function turn() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try {
    localStorage.setItem("leadline-theme", root.dataset.theme);
  } catch {
    // It then holds for this visit.
  }
  dispatchEvent(new Event("themechange"));
}

// Links within the page open without loading it anew.
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const target = new URL(link.href);
  if (target.origin !== location.origin || !(target.pathname in PAGES) || target.hash || link.target) return;
  event.preventDefault();
  go(target.pathname + target.search);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("themechange")));
addEventListener("popstate", open);
setInterval(drawFrame, 500);
setInterval(() => fetch("/api/config").catch(() => null), ASK_MS);

const answer = await fetch("/api/config").catch(() => null);
if (answer?.status === 401) signIn();
else {
  if (answer?.ok) config = await answer.json();
  open();
}
