// Words, numbers and times. Everything here returns plain strings: they are put on the page as text, never as markup.

// Controls (terminal escapes too), invisible and direction-changing characters: shown as escapes, as the server does in sentences.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]/gu;

/** What an agent wrote, on one line and harmless to read. */
export function shown(text, limit = 200) {
  const cut = text.length > limit ? `${text.slice(0, limit)}…(+${text.length - limit})` : text;
  return cut.replace(HIDDEN, (char) => {
    const code = char.codePointAt(0);
    return code < 0x100 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
  });
}

/** A duration in the largest unit that says enough. */
export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  const s = Math.max(0, ms) / 1000;
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} d`;
}

const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit" });

/** A time of day; with the date where it is not of today. */
export function clock(ms) {
  if (!ms) return "–";
  const then = new Date(ms);
  return (then.toDateString() === new Date().toDateString() ? CLOCK : DAY).format(then);
}

const NUMBER = new Intl.NumberFormat();
export const number = (value) => (value === null || value === undefined ? "?" : NUMBER.format(value));
export const ratio = (value) => (value === null || value === undefined ? "?" : value.toFixed(2));
export const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

/** The address of a session's page. */
export function sessionLink(session, agent) {
  return `/session?${new URLSearchParams({ session, agent })}`;
}
