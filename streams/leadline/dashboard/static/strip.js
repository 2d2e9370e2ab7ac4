// The heat strip: every session a cell, readable from 10 to 10,000 of them. A canvas, as so many elements would be slow;
// the table of sessions below it says the same in text.

import { ROW, WHO } from "/static/store.js";
import { number, ratio, shown } from "/static/text.js";

const GROW = { least: 3, most: 26 };
const HEAD = 20;
const HOLLOW = " hollow";

export class Strip {
  /** `onOpen(entry)` when a cell is chosen; `onPoint(entry | null)` when one is pointed at. */
  constructor(canvas, onOpen, onPoint) {
    this.canvas = canvas;
    this.onPoint = onPoint;
    this.entries = [];
    this.blocks = [];
    this.by = "state";
    this.at = -1;
    this.shape = "";
    this.drawn = [];
    this.ring = document.createElement("div");
    this.ring.className = "ring";
    canvas.after(this.ring);
    this.colors();
    canvas.addEventListener("pointermove", (event) => this.point(this.find(event)));
    canvas.addEventListener("pointerleave", () => this.point(-1));
    canvas.addEventListener("click", (event) => {
      const index = this.find(event);
      if (index >= 0) onOpen(this.entries[index]);
    });
    canvas.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && this.at >= 0) onOpen(this.entries[this.at]);
      const all = this.entries.length;
      const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.columns, ArrowUp: -this.columns, Home: -all, End: all }[event.key];
      if (!step) return;
      event.preventDefault();
      this.point(Math.min(all - 1, Math.max(0, this.at < 0 ? (event.key === "End" ? all - 1 : 0) : this.at + step)));
    });
    this.watch = new ResizeObserver(() => this.draw());
    this.watch.observe(canvas.parentElement);
    this.themed = () => {
      this.colors();
      this.shape = "";
      this.draw();
    };
    addEventListener("themechange", this.themed);
  }

  close() {
    this.watch.disconnect();
    removeEventListener("themechange", this.themed);
  }

  colors() {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(name).trim();
    this.soft = read("--soft");
    this.ground = read("--panel");
    this.ofState = new Map();
    this.read = read;
    this.ramp = ["--ratio-0", "--ratio-1", "--ratio-2", "--ratio-3", "--ratio-4"].map(read);
    this.unknown = read("--c-unknown");
  }

  state(word) {
    if (!this.ofState.has(word)) this.ofState.set(word, this.read(`--c-${word}`) || this.unknown);
    return this.ofState.get(word);
  }

  show(entries, by) {
    const pointed = this.entries[this.at]?.who[WHO.slot];
    this.entries = entries;
    this.by = by;
    if (pointed !== undefined && entries[this.at]?.who[WHO.slot] !== pointed) {
      this.at = entries.findIndex((entry) => entry.who[WHO.slot] === pointed);
      this.onPoint(entries[this.at] ?? null);
    }
    this.draw();
  }

  /** One block a fleet, one under the other; a single one where there are too many fleets to name. */
  layout(width) {
    const starts = [];
    this.entries.forEach((entry, index) => {
      if (!index || entry.who[WHO.fleet] !== this.entries[index - 1].who[WHO.fleet]) starts.push(index);
    });
    const named = starts.length > 1 && starts.length <= 12;
    const bounds = named ? starts : [0];
    const room = Math.max(140, Math.min(420, innerHeight * 0.36));
    const height = (size) => {
      const columns = Math.max(1, Math.floor(width / size));
      return bounds.reduce((sum, start, n) => {
        const count = (bounds[n + 1] ?? this.entries.length) - start;
        return sum + Math.ceil(count / columns) * size + (named ? HEAD : 0);
      }, 0);
    };
    let size = GROW.most;
    while (size > GROW.least && height(size) > room) size -= size > 12 ? 2 : 1;
    this.size = size;
    this.columns = Math.max(1, Math.floor(width / size));
    let top = 0;
    this.blocks = bounds.map((start, n) => {
      const end = bounds[n + 1] ?? this.entries.length;
      if (named) top += HEAD;
      const block = { start, end, top, name: named ? this.entries[start].who[WHO.fleet] || "no fleet" : "" };
      top += Math.ceil((end - start) / this.columns) * size;
      return block;
    });
    return Math.max(top, size);
  }

  /** All of it, where cells have moved; else only those that look different than when they were last drawn. */
  draw() {
    const width = this.canvas.parentElement.clientWidth;
    if (!width) return;
    const height = this.layout(width);
    const scale = devicePixelRatio || 1;
    const pen = this.canvas.getContext("2d");
    const shape = JSON.stringify([width, height, scale, this.size, this.blocks]);
    if (shape !== this.shape) {
      this.shape = shape;
      this.drawn = [];
      // This empties it, also where the size is what it was.
      this.canvas.width = Math.round(width * scale);
      this.canvas.height = Math.round(height * scale);
      pen.setTransform(scale, 0, 0, scale, 0, 0);
      this.titles(pen);
    }
    this.cells(pen);
    this.mark();
  }

  titles(pen) {
    pen.font = "600 12px system-ui, sans-serif";
    pen.textBaseline = "alphabetic";
    pen.fillStyle = this.soft;
    for (const block of this.blocks) {
      if (block.name) pen.fillText(`${shown(block.name, 60)}  ${number(block.end - block.start)}`, 0, block.top - 6);
    }
  }

  cells(pen) {
    const { size, drawn } = this;
    const side = this.side();
    // Cells of one colour are drawn together: a path each, instead of a change of colour for every cell.
    const groups = new Map();
    for (const block of this.blocks) {
      for (let index = block.start; index < block.end; index++) {
        const look = this.look(this.entries[index]);
        if (look === drawn[index]) continue;
        if (drawn[index] !== undefined) {
          const { x, y } = this.place(index, block);
          pen.clearRect(x, y, size, size);
        }
        drawn[index] = look;
        if (!groups.has(look)) groups.set(look, []);
        groups.get(look).push(index, block);
      }
    }
    const rounded = size >= 10;
    const hole = Math.max(1, side * 0.36);
    for (const [look, list] of groups) {
      pen.fillStyle = look.replace(HOLLOW, "");
      if (rounded) pen.beginPath();
      for (let n = 0; n < list.length; n += 2) {
        const { x, y } = this.place(list[n], list[n + 1]);
        if (rounded) pen.roundRect(x, y, side, side, Math.min(4, side / 4));
        else pen.fillRect(x, y, side, side);
      }
      if (rounded) pen.fill();
      if (!look.endsWith(HOLLOW)) continue;
      pen.fillStyle = this.ground;
      for (let n = 0; n < list.length; n += 2) {
        const { x, y } = this.place(list[n], list[n + 1]);
        pen.fillRect(x + (side - hole) / 2, y + (side - hole) / 2, hole, hole);
      }
    }
  }

  /** The cell that is pointed at has a ring, which lies over the canvas. */
  mark() {
    const on = this.at >= 0 && this.at < this.entries.length;
    this.ring.hidden = !on;
    if (!on) return;
    const { x, y } = this.place(this.at, this.block(this.at));
    const { style } = this.ring;
    style.width = style.height = `${this.side() + 4}px`;
    style.transform = `translate(${x - 2}px, ${y - 2}px)`;
  }

  /** Of a cell, without the gap to the next. */
  side() {
    return this.size - (this.size >= 14 ? 2 : this.size >= 5 ? 1 : 0.5);
  }

  /** Not by colour alone: a session that the monitor has stopped is hollow. */
  look(entry) {
    const color = this.color(entry);
    return entry.word === "halted" && this.size >= 5 ? color + HOLLOW : color;
  }

  color({ row, word }) {
    if (this.by === "state") return this.state(word);
    const value = row[ROW.ratio];
    if (value === null) return this.unknown;
    return this.ramp[value < 0.25 ? 0 : value < 0.3 ? 1 : value < 0.5 ? 2 : value < 0.75 ? 3 : 4];
  }

  block(index) {
    return this.blocks.find((block) => index < block.end) ?? this.blocks[0];
  }

  place(index, block) {
    const n = index - block.start;
    return { x: (n % this.columns) * this.size, y: block.top + Math.floor(n / this.columns) * this.size };
  }

  find(event) {
    const { left, top } = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - left) / this.size);
    const y = event.clientY - top;
    if (column < 0 || column >= this.columns) return -1;
    for (const block of this.blocks) {
      const line = Math.floor((y - block.top) / this.size);
      const index = block.start + line * this.columns + column;
      if (line >= 0 && index < block.end && index >= block.start) return index;
    }
    return -1;
  }

  point(index) {
    if (index === this.at) return;
    this.at = index;
    this.canvas.classList.toggle("pointing", index >= 0);
    this.onPoint(index >= 0 ? this.entries[index] : null);
    this.mark();
  }
}

/** One cell in words. */
export function told({ who, row, word }) {
  const measured = `raw ratio ${ratio(row[ROW.ratio])}, ${row[ROW.spans] ?? "?"} spans, depth ${row[ROW.depth] ?? "?"}, round ${row[ROW.round] ?? "?"}`;
  return `${shown(who[WHO.session], 80)}: ${word}, ${measured}`;
}
