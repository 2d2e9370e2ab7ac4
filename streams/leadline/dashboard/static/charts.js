// Four signals over the rounds on one axis, drawn by uPlot: thresholds as lines, incidents and commands where they happened.

import uPlot from "/static/vendor/uplot/uPlot.esm.js";
import { number, ratio } from "/static/text.js";

const AHEAD = 12;
const PANES = [
  { key: "raw_ratio", name: "raw ratio", height: 184, range: () => [0, 1], quarters: true, top: 24, say: ratio, color: "--line-ratio" },
  { key: "spans", name: "distinct source spans", height: 116, say: number, color: "--line-spans" },
  { key: "cosine", name: "query cosine retained", height: 100, range: (_, low, high) => [Math.max(0, (low ?? 0) - 0.1), (high ?? 1) + 0.1], say: ratio, color: "--line-cosine" },
  { key: "depth", name: "summary depth", height: 84, say: number, color: "--line-depth", stepped: true },
];
const MARKS = { incident: "--m-incident", command: "--m-command", ack: "--m-ack", release: "--m-release" };

export class Charts {
  /** Draws into `root`; `onRound(index | null)` when the cursor is on a round. */
  constructor(root, onRound) {
    this.root = root;
    this.onRound = onRound;
    this.plots = [];
    this.document = null;
    this.shape = "";
    this.span = null;
    this.watch = new ResizeObserver(() => this.resize());
    this.watch.observe(root);
    this.themed = () => this.rebuild();
    addEventListener("themechange", this.themed);
  }

  close() {
    this.watch.disconnect();
    removeEventListener("themechange", this.themed);
    this.clear();
  }

  clear() {
    for (const plot of this.plots) plot.destroy();
    this.plots = [];
    this.root.textContent = "";
  }

  show(document) {
    this.document = document;
    // Lines come and go (a forecast, a floor that is not known yet): another set of lines is another chart.
    const shape = JSON.stringify([Object.entries(document.thresholds).map(([name, value]) => [name, value === null]), document.forecast.map((each) => each.what)]);
    if (shape !== this.shape || !this.plots.length) {
      this.shape = shape;
      this.rebuild();
    } else {
      PANES.forEach((pane, n) => this.plots[n].setData(this.data(pane)));
    }
  }

  rebuild() {
    if (!this.document) return;
    this.clear();
    const style = getComputedStyle(window.document.documentElement);
    this.read = (name) => style.getPropertyValue(name).trim();
    const sync = uPlot.sync(`rounds-${Math.random()}`);
    this.plots = PANES.map((pane, n) => {
      const figure = window.document.createElement("figure");
      const caption = window.document.createElement("figcaption");
      caption.textContent = pane.name;
      figure.append(caption);
      this.root.append(figure);
      return new uPlot(this.options(pane, n === PANES.length - 1, sync), this.data(pane), figure);
    });
  }

  width() {
    return Math.max(240, this.root.clientWidth);
  }

  resize() {
    PANES.forEach((pane, n) => this.plots[n]?.setSize({ width: this.width(), height: pane.height }));
  }

  /** The rounds, and those ahead that a forecast reaches into. */
  axis() {
    const rounds = this.document.rounds.round;
    const last = rounds.at(-1) ?? 0;
    const reach = Math.max(0, ...this.document.forecast.map((each) => Math.min(AHEAD, each.rounds)));
    return [...rounds, ...Array.from({ length: reach }, (_, n) => last + n + 1)];
  }

  lines(pane) {
    const { raw_ratio_floor, raw_ratio_exit, span_floor, max_depth } = this.document.thresholds;
    if (pane.key === "raw_ratio") return [["floor", raw_ratio_floor, "--limit"], ["exit", raw_ratio_exit, "--limit-exit"]];
    if (pane.key === "spans" && span_floor !== null) return [["floor", span_floor, "--limit"]];
    if (pane.key === "depth" && max_depth !== null) return [["limit", max_depth, "--limit"]];
    return [];
  }

  data(pane) {
    const axis = this.axis();
    const values = this.document.rounds[pane.key];
    const pad = (column) => [...column, ...Array(axis.length - column.length).fill(null)];
    const columns = [axis, pad(values), ...this.lines(pane).map(([, level]) => axis.map(() => level))];
    const ahead = this.document.forecast.find((each) => each.what === pane.key);
    if (ahead) {
      const line = axis.map((round) => {
        const on = round - ahead.from_round;
        return on < 0 || on > ahead.rounds ? null : Math.max(0, ahead.level + ahead.slope * on);
      });
      columns.push(line);
    }
    return columns;
  }

  options(pane, last, sync) {
    const ink = this.read("--soft");
    const grid = { stroke: this.read("--grid"), width: 1 };
    const font = "12px system-ui, sans-serif";
    const color = this.read(pane.color);
    const levels = this.lines(pane).map(([name, , tone]) => ({
      label: name, stroke: this.read(tone), width: 1.5, dash: name === "exit" ? [2, 4] : [6, 4], points: { show: false },
    }));
    const ahead = this.document.forecast.some((each) => each.what === pane.key)
      ? [{ label: "forecast", stroke: color, width: 2, dash: [3, 5], points: { show: false } }]
      : [];
    return {
      width: this.width(),
      height: pane.height,
      padding: [pane.top ?? 10, 14, last ? 0 : 4, 0],
      legend: { show: false },
      cursor: { sync: { key: sync.key, setSeries: false }, y: false, drag: { x: true, y: false }, points: { size: 7, fill: color } },
      scales: {
        x: { time: false, range: (plot, low, high) => this.reach(low, high) },
        y: { range: pane.range ?? ((_, low, high) => [0, Math.max(1, Math.ceil((high ?? 1) * 1.15))]) },
      },
      axes: [
        { show: true, stroke: ink, grid, ticks: { show: false }, font, size: last ? 30 : 4, values: last ? undefined : () => [], space: 60, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000] },
        { stroke: ink, grid, ticks: { show: false }, font, size: 46, space: 28, incrs: pane.quarters ? [0.25] : undefined, values: (_, splits) => splits.map((each) => (Number.isInteger(each) || pane.range ? +each.toFixed(2) : "")) },
      ],
      series: [
        { label: "round" },
        {
          label: pane.name, stroke: color, width: 2, fill: pane.stepped ? undefined : `${color}22`,
          paths: pane.stepped ? uPlot.paths.stepped({ align: 0 }) : undefined,
          points: { show: (plot) => plot.data[0].length < 80, size: 5, fill: color, stroke: color },
        },
        ...levels,
        ...ahead,
      ],
      hooks: {
        drawClear: [(plot) => this.held(plot)],
        draw: [(plot) => this.marks(plot, pane)],
        setCursor: [(plot) => this.onRound(this.pointed(plot))],
      },
    };
  }

  /** The first and last round that are shown; null: all of them. A zoom by hand stays until it is undone. */
  showSpan(span) {
    this.span = span;
    for (const plot of this.plots) plot.setData(plot.data);
  }

  reach(low, high) {
    const axis = this.axis();
    const whole = low === axis[0] && high === axis.at(-1);
    const [start, end] = whole && this.span ? [Math.max(low, this.span[0]), this.ahead() ? high : Math.min(high, this.span[1])] : [low, high];
    return [Math.min(start, end - 4) - 0.5, Math.max(end, start + 4) + 0.5];
  }

  /** Whether what is shown goes up to now, so that the rounds of a forecast belong to it. */
  ahead() {
    return this.span[1] >= (this.document.rounds.round.at(-1) ?? 0);
  }

  pointed(plot) {
    const { idx, left } = plot.cursor;
    return left < 0 || idx === null || idx === undefined || idx >= this.document.rounds.round.length ? null : idx;
  }

  /** From each halt to its release the agent was held: a band behind the lines. */
  held(plot) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.fillStyle = this.read("--held");
    const end = this.document.rounds.round.at(-1) ?? 0;
    const holding = new Set();
    let from = 0;
    const band = (one, other) => {
      const x = Math.max(bbox.left, plot.valToPos(one, "x", true));
      const end = Math.min(bbox.left + bbox.width, plot.valToPos(other, "x", true));
      if (end >= x) ctx.fillRect(x, bbox.top, Math.max(2, end - x), bbox.height);
    };
    for (const mark of this.document.marks) {
      if (mark.kind === "command" && (mark.label === "halt" || mark.label === "stop-agent")) {
        if (!holding.size) from = mark.x;
        holding.add(mark.incident);
      } else if (mark.kind === "release" && holding.delete(mark.incident) && !holding.size) band(from, mark.x);
    }
    // What is not open any more ended without a release: with the session, or with its epoch.
    if (this.document.incidents.some((one) => holding.has(one.incident_id))) band(from, end + 0.5);
    ctx.restore();
  }

  marks(plot, pane) {
    const { ctx, bbox } = plot;
    const scale = devicePixelRatio || 1;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, 0, bbox.width, plot.ctx.canvas.height);
    ctx.clip();
    for (const mark of this.document.marks) {
      const x = Math.round(plot.valToPos(mark.x, "x", true));
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.strokeStyle = ctx.fillStyle = this.read(MARKS[mark.kind]);
      ctx.lineWidth = (mark.kind === "ack" ? 1 : 1.5) * scale;
      ctx.setLineDash(mark.kind === "ack" ? [2 * scale, 3 * scale] : []);
      ctx.globalAlpha = mark.kind === "ack" ? 0.7 : 0.85;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.globalAlpha = 1;
      if (pane.key === "raw_ratio") this.sign(ctx, mark.kind, x, bbox.top, 5 * scale);
    }
    ctx.restore();
  }

  /** Each kind of mark has a shape of its own: triangle, square, circle, diamond. */
  sign(ctx, kind, x, y, size) {
    ctx.setLineDash([]);
    ctx.beginPath();
    if (kind === "incident") {
      ctx.moveTo(x - size, y - size);
      ctx.lineTo(x + size, y - size);
      ctx.lineTo(x, y + size * 0.8);
    } else if (kind === "command") ctx.rect(x - size * 0.8, y + size * 1.4, size * 1.6, size * 1.6);
    else if (kind === "ack") ctx.arc(x, y + size * 2.2, size * 0.7, 0, 2 * Math.PI);
    else {
      ctx.moveTo(x, y - size);
      ctx.lineTo(x + size, y);
      ctx.lineTo(x, y + size);
      ctx.lineTo(x - size, y);
    }
    ctx.closePath();
    ctx.fill();
  }
}
