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
    this.timings = null;
    this.loaded = false;
    /** By slot: {who, row, word, said}; `said` is kept by whoever shows it. An entry stays the same object while its session keeps its name. */
    this.entries = new Map();
    this.coming = null;
    this.ordered = [];
    this.unordered = false;
    this.names = [];
  }

  get size() {
    return this.entries.size;
  }

  take(message) {
    if (message.kind === "everything") {
      // Slots are one server's own names: after another connection nothing old holds. It stays until all of the new has come.
      this.coming = new Map();
      this.conditions = message.conditions;
      this.rules = message.rules;
    }
    const entries = this.coming ?? this.entries;
    for (const who of message.who) {
      const known = entries.get(who[WHO.slot]);
      entries.set(who[WHO.slot], { who, row: known?.row ?? null, word: known?.word ?? "", said: null });
      this.unordered = true;
    }
    for (const row of message.rows) {
      const entry = entries.get(row[ROW.slot]);
      if (!entry) continue;
      entry.row = row;
      entry.word = this.conditions[row[ROW.condition]];
    }
    for (const slot of message.gone) this.unordered = entries.delete(slot) || this.unordered;
    this.timings = message.timings;
    if (!this.coming || message.more) return;
    this.entries = this.coming;
    this.coming = null;
    this.unordered = this.loaded = true;
  }

  /** By fleet, then in order of appearance: a cell keeps its place while it lives. */
  order() {
    if (!this.unordered) return;
    this.unordered = false;
    const fleets = new Map();
    for (const entry of this.entries.values()) {
      const name = entry.who[WHO.fleet];
      if (!fleets.has(name)) fleets.set(name, []);
      fleets.get(name).push(entry);
    }
    this.names = [...fleets.keys()].sort(compare);
    this.ordered = this.names.flatMap((name) => fleets.get(name).sort((one, other) => one.who[WHO.slot] - other.who[WHO.slot]));
  }

  fleets() {
    this.order();
    return this.names;
  }

  /** Sessions that the filters leave. `counts`: how many there are by state, whatever state is asked for. */
  matching(filters) {
    this.order();
    const asked = (name) => filters.get(name) ?? "";
    const [fleet, state, rule, agent, words] = [asked("fleet"), asked("state"), asked("rule"), asked("agent").toLowerCase(), asked("q").toLowerCase()];
    const counts = new Map(this.conditions.map((word) => [word, 0]));
    const found = [];
    for (const entry of this.ordered) {
      const { who, row, word } = entry;
      if (!row) continue;
      if (fleet && who[WHO.fleet] !== fleet) continue;
      if (agent && !who[WHO.agent].toLowerCase().includes(agent)) continue;
      if (words && !who[WHO.session].toLowerCase().includes(words)) continue;
      if (rule && !row[ROW.open].some((one) => one[OPEN.rule] === rule)) continue;
      counts.set(word, (counts.get(word) ?? 0) + 1);
      if (!state || word === state) found.push(entry);
    }
    return { found, counts };
  }
}

export function compare(one, other) {
  return one < other ? -1 : one > other ? 1 : 0;
}

/** The first `most` of `values` in the order of `before(one, other)` (negative: one comes first), without sorting all of them. */
export function first(values, most, before) {
  const kept = [];
  for (const value of values) {
    if (kept.length === most && before(value, kept[most - 1]) >= 0) continue;
    let low = 0;
    let high = kept.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (before(value, kept[middle]) < 0) high = middle;
      else low = middle + 1;
    }
    kept.splice(low, 0, value);
    if (kept.length > most) kept.pop();
  }
  return kept;
}
