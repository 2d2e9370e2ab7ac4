// The fleet as the server streams it. Rows are arrays, in the order of leadline/dashboard/rows.py.

export const WHO = { slot: 0, session: 1, agent: 2, fleet: 3 };
export const ROW = { slot: 0, condition: 1, ratio: 2, spans: 3, depth: 4, round: 5, seen: 6, open: 7 };
export const OPEN = {
  id: 0, rule: 1, subject: 2, mode: 3, openedAt: 4, openedRound: 5, firings: 6, kind: 7, stage: 8, attempt: 9, issuedAt: 10, releasing: 11,
};
export const IN_FLIGHT = new Set(["issued", "accepted", "effective"]);
// Conditions that ask nothing of anybody.
export const CALM = new Set(["healthy", "ended", "unknown"]);

/** How current the data is, by the server's clock. */
export class Freshness {
  constructor() {
    this.reading = null;
    this.behindServer = 0;
    this.connected = false;
  }

  take(reading) {
    this.reading = reading;
    this.behindServer = reading.now - Date.now();
    this.connected = true;
  }

  now() {
    return Date.now() + this.behindServer;
  }

  age() {
    return this.reading?.as_of ? Math.max(0, this.now() - this.reading.as_of) : null;
  }
}

const FIRST_MS = 1000;
const MOST_MS = 30000;

/** To the page for signing in, and back to where we are. */
export function signIn() {
  location.assign(`/login?${new URLSearchParams({ next: location.pathname + location.search })}`);
}

/**
 * Follows a stream of server-sent events for as long as the page is open. The browser connects again by itself where a connection
 * breaks, but gives up for good at any answer that is no stream, such as a proxy's 502: then we begin anew, after a while.
 */
export function follow(url, freshness, take) {
  let source = null;
  let timer = 0;
  let wait = FIRST_MS;
  let stopped = false;

  function open() {
    source = new EventSource(url);
    source.onmessage = (event) => {
      const message = JSON.parse(event.data);
      wait = FIRST_MS;
      freshness.take(message.reading);
      take(message);
    };
    source.onerror = () => {
      freshness.connected = false;
      if (source.readyState !== EventSource.CLOSED) return;
      // Not all pages at once.
      timer = setTimeout(again, wait * (0.5 + Math.random() / 2));
      wait = Math.min(2 * wait, MOST_MS);
    };
  }

  async function again() {
    const answer = await fetch("/api/config").catch(() => null);
    if (stopped) return;
    if (answer?.status === 401) signIn();
    else open();
  }

  open();
  return () => {
    stopped = true;
    clearTimeout(timer);
    source.close();
  };
}

export class Fleet {
  constructor() {
    this.conditions = [];
    this.rules = [];
    this.who = new Map();
    this.rows = new Map();
    this.timings = null;
    this.ordered = [];
    this.loaded = false;
  }

  take(message) {
    if (message.kind === "everything") {
      // Slots are one server's own names: after another connection nothing old holds.
      this.who.clear();
      this.rows.clear();
      this.conditions = message.conditions;
      this.rules = message.rules;
      this.loaded = true;
    }
    for (const who of message.who) this.who.set(who[WHO.slot], who);
    for (const row of message.rows) this.rows.set(row[ROW.slot], row);
    for (const slot of message.gone) {
      this.who.delete(slot);
      this.rows.delete(slot);
    }
    this.timings = message.timings;
    if (message.who.length || message.gone.length || message.kind === "everything") this.order();
  }

  /** By fleet, then in order of appearance: a cell keeps its place while it lives. */
  order() {
    this.ordered = [...this.who.values()].sort((one, other) => compare(one[WHO.fleet], other[WHO.fleet]) || one[WHO.slot] - other[WHO.slot]);
  }

  fleets() {
    return [...new Set(this.ordered.map((who) => who[WHO.fleet]))];
  }

  /** Sessions that the filters leave, as {who, row, word}; `except` is a filter that does not count. */
  matching(filters, except = "") {
    const asked = (name) => (name === except ? "" : filters.get(name) ?? "");
    const [fleet, state, rule, agent] = ["fleet", "state", "rule", "agent"].map(asked);
    const words = asked("q").toLowerCase();
    const found = [];
    for (const who of this.ordered) {
      if (fleet && who[WHO.fleet] !== fleet) continue;
      if (agent && !who[WHO.agent].toLowerCase().includes(agent.toLowerCase())) continue;
      if (words && !who[WHO.session].toLowerCase().includes(words)) continue;
      const row = this.rows.get(who[WHO.slot]);
      if (!row) continue;
      const word = this.conditions[row[ROW.condition]];
      if (state && word !== state) continue;
      if (rule && !row[ROW.open].some((one) => one[OPEN.rule] === rule)) continue;
      found.push({ who, row, word });
    }
    return found;
  }
}

export function compare(one, other) {
  return one < other ? -1 : one > other ? 1 : 0;
}
