// Timeline: draws the spans of all lanes on a canvas; zoom with the wheel, pan by dragging, select by clicking.
//
// CATEGORY_COLOURS, by name, are of the page. A lane is {label, process, begin, length, name, value, depth}: arrays in the order of begin, times in microseconds.

"use strict";

const ROW = 16, GAP = 6, LABELS = 190, AXIS = 24;

/** The colour of a category: the same in all tabs and runs. */
const categoryColour = category => CATEGORY_COLOURS[category] || "#8c8c8c";

/** The largest i with values[i] <= wanted, or -1. */
function lastAtMost(values, wanted) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= wanted) low = middle + 1; else high = middle;
  }
  return low - 1;
}

/** A round step for about `count` marks over `width` (1, 2 or 5 times a power of ten). */
function roundStep(width, count) {
  const rough = width / count, power = Math.pow(10, Math.floor(Math.log10(rough)));
  return [1, 2, 5, 10].map(factor => factor * power).find(step => step >= rough) || 10 * power;
}

/** Microseconds as text, in the unit that fits `scale` microseconds; with the digits that tell marks `step` apart. */
function timeText(microseconds, scale, step) {
  const [unit, factor] = scale >= 1e6 ? ["s", 1e6] : scale >= 1e3 ? ["ms", 1e3] : ["us", 1];
  const digits = step ? Math.min(Math.max(Math.ceil(-Math.log10(step / factor) - 1e-9), 0), 9) : 3;
  return Number((microseconds / factor).toFixed(digits)) + " " + unit;
}

/** For each depth of a lane the numbers of its spans and their begins, in order; spans of one depth do not overlap. */
function levels(lane) {
  const counts = new Uint32Array(lane.rows);
  for (let i = 0; i < lane.depth.length; i++) counts[lane.depth[i]]++;
  const made = Array.from(counts, count => ({ index: new Uint32Array(count), begin: new Float64Array(count) }));
  counts.fill(0);
  for (let i = 0; i < lane.depth.length; i++) {
    const level = made[lane.depth[i]], at = counts[lane.depth[i]]++;
    level.index[at] = i; level.begin[at] = lane.begin[i];
  }
  return made;
}

/** The lanes of each thread: its own and those of its IPUs. */
function threadRows(lanes) {
  const found = new Map();
  for (const lane of lanes) {
    const key = lane.thread === undefined ? lane : lane.thread;
    if (found.has(key)) found.get(key).push(lane); else found.set(key, [lane]);
  }
  return found.values();
}

/** The spans of the lanes of a thread that begin before `to`, in the order of begin, outer before inner: [lane, index]. */
function* nested(lanes, to) {
  const next = lanes.map(() => 0);
  for (;;) {
    let first = -1;
    lanes.forEach((lane, number) => {
      const i = next[number];
      if (i >= lane.begin.length || lane.begin[i] >= to) return;
      const other = lanes[first], j = next[first];
      if (first < 0 || lane.begin[i] < other.begin[j] || (lane.begin[i] === other.begin[j] && lane.length[i] > other.length[j])) first = number;
    });
    if (first < 0) return;
    yield [lanes[first], next[first]++];
  }
}

class Timeline {
  constructor(canvas, lanes, names, onSelect, flows) {
    this.flows = flows || [];
    this.canvas = canvas; this.lanes = lanes; this.names = names; this.onSelect = onSelect;
    this.end = Math.max(1, ...lanes.map(lane => lane.end));
    this.from = 0; this.to = this.end; this.top = 0; this.selected = null; this.range = null; this.wanted = null;
    const categories = [...new Set(names.map(name => name.category))].sort();
    this.colour = names.map(name => categoryColour(name.category));
    this.categories = categories.map(category => [category, categoryColour(category)]);
    let y = 0;
    for (const lane of lanes) { lane.y = y; y += lane.rows * ROW + GAP; lane.levels = levels(lane); }
    this.height = y;
    canvas.addEventListener("wheel", event => this.wheel(event), { passive: false });
    canvas.addEventListener("mousedown", event => this.press(event));
    canvas.addEventListener("keydown", event => this.key(event));
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  get width() { return this.canvas.clientWidth - LABELS; }
  x(time) { return LABELS + (time - this.from) / (this.to - this.from) * this.width; }
  time(x) { return this.from + (x - LABELS) / this.width * (this.to - this.from); }

  show(from, to) {
    const least = 0.05, length = Math.min(Math.max(to - from, least), this.end);
    this.from = Math.min(Math.max(from, 0), this.end - length); this.to = this.from + length;
    this.draw();
  }

  zoom(factor, around) { this.show(around - (around - this.from) * factor, around + (this.to - around) * factor); }

  wheel(event) {
    event.preventDefault();
    if (event.shiftKey) this.scroll(event.deltaY || event.deltaX);
    else this.zoom(Math.exp(event.deltaY / 400), this.time(event.offsetX));
  }

  scroll(by) {
    this.top = Math.min(Math.max(this.top + by, 0), Math.max(0, this.height - this.canvas.clientHeight + AXIS));
    this.draw();
  }

  press(event) {
    const start = { x: event.offsetX, y: event.offsetY, from: this.from, to: this.to, top: this.top };
    const mark = event.shiftKey;
    let moved = false;
    const move = at => {
      const dx = at.offsetX - start.x, dy = at.offsetY - start.y;
      moved = moved || Math.abs(dx) + Math.abs(dy) > 3;
      if (mark) {
        this.range = [this.time(start.x), this.time(at.offsetX)].sort((a, b) => a - b);
        this.draw();
      } else if (moved) {
        const shift = dx / this.width * (start.to - start.from);
        this.top = Math.min(Math.max(start.top - dy, 0), Math.max(0, this.height - this.canvas.clientHeight + AXIS));
        this.show(start.from - shift, start.to - shift);
      }
    };
    const release = () => {
      this.canvas.removeEventListener("mousemove", move);
      window.removeEventListener("mouseup", release);
      if (mark && moved) this.onSelect({ range: this.range, totals: this.totals(this.range) });
      else if (!moved) this.select(this.at(start.x, start.y));
    };
    this.canvas.addEventListener("mousemove", move);
    window.addEventListener("mouseup", release);
  }

  key(event) {
    const middle = (this.from + this.to) / 2, step = (this.to - this.from) / 5;
    const act = { w: () => this.zoom(0.7, middle), s: () => this.zoom(1 / 0.7, middle), a: () => this.show(this.from - step, this.to - step),
      d: () => this.show(this.from + step, this.to + step), "0": () => this.show(0, this.end) }[event.key];
    if (act) { act(); event.preventDefault(); }
  }

  /** The span under a point: {lane, index}, or null. */
  at(x, y) {
    if (x < LABELS || y < AXIS) return null;
    const down = y - AXIS + this.top, time = this.time(x), slack = (this.to - this.from) / this.width;
    for (const lane of this.lanes) {
      const depth = Math.floor((down - lane.y) / ROW);
      if (depth < 0 || depth >= lane.rows) continue;
      for (let i = lastAtMost(lane.begin, time + slack), tried = 0; i >= 0 && tried < 20000; i--, tried++) {
        if (lane.depth[i] === depth && lane.begin[i] + lane.length[i] >= time - slack) return { lane, index: i };
        if (lane.depth[i] < depth && lane.begin[i] + lane.length[i] < time - slack) break;
      }
    }
    return null;
  }

  select(found) {
    this.selected = found;
    this.draw();
    this.onSelect(found && { ...found, ...this.describe(found), together: this.together(found) });
  }

  describe({ lane, index }) {
    const name = this.names[lane.name[index]];
    return { name: name.name, category: name.category, args: name.args, begin: lane.begin[index], length: lane.length[index],
      value: lane.value[index], label: lane.label, process: lane.process };
  }

  /** The spans of the same collective on other instances. */
  together({ lane, index }) {
    const name = this.names[lane.name[index]];
    if (!name.args || name.args.communicator === undefined) return [];
    const found = [];
    for (const other of this.lanes) {
      if (other === lane) continue;
      for (let i = 0; i < other.begin.length; i++) {
        const its = this.names[other.name[i]];
        if (other.value[i] === lane.value[index] && its.name === name.name && its.args && its.args.communicator === name.args.communicator)
          found.push({ lane: other, index: i });
      }
    }
    return found;
  }

  /** Spans whose name contains `text`, at most `most`; they are outlined until the next search. */
  search(text, most) {
    const wanted = text.toLowerCase();
    this.wanted = text ? this.names.map(name => (name.name + " " + (name.args && name.args.output || "")).toLowerCase().includes(wanted)) : null;
    const found = [];
    let count = 0;
    if (this.wanted) for (const lane of this.lanes) for (let i = 0; i < lane.begin.length; i++)
      if (this.wanted[lane.name[i]]) { count++; if (found.length < most) found.push({ lane, index: i }); }
    this.draw();
    return { count, found };
  }

  /** Microseconds by name within a range, largest first; a span counts with its part inside, without that of spans inside it. */
  totals([from, to]) {
    const sums = new Map();
    for (const rows of threadRows(this.lanes)) {
      const open = [];
      for (const [lane, i] of nested(rows, to)) {
        const begin = lane.begin[i], end = begin + lane.length[i];
        const inside = Math.min(end, to) - Math.max(begin, from);
        // Lengths are rounded: a span is inside of those that contain its middle.
        while (open.length && open[open.length - 1].end <= (begin + end) / 2) open.pop();
        if (inside > 0) {
          const name = this.names[lane.name[i]].name;
          sums.set(name, (sums.get(name) || 0) + inside);
          if (open.length) sums.set(open[open.length - 1].name, sums.get(open[open.length - 1].name) - inside);
          open.push({ end, name });
        }
      }
    }
    return [...sums].sort((a, b) => b[1] - a[1]);
  }

  draw() {
    const canvas = this.canvas, ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
    if (canvas.width !== width * ratio || canvas.height !== height * ratio) { canvas.width = width * ratio; canvas.height = height * ratio; }
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = "11px sans-serif"; context.textBaseline = "middle";
    context.save();
    context.beginPath(); context.rect(LABELS, AXIS, width - LABELS, height - AXIS); context.clip();
    this.drawn = 0;
    for (const lane of this.lanes) {
      const y = AXIS + lane.y - this.top;
      if (y < height && y + lane.rows * ROW > AXIS) this.drawLane(context, lane, y);
    }
    this.drawFlows(context);
    if (this.selected) this.connect(context);
    if (this.range) {
      context.fillStyle = "rgba(30, 100, 200, .15)";
      context.fillRect(this.x(this.range[0]), AXIS, this.x(this.range[1]) - this.x(this.range[0]), height);
    }
    context.restore();
    this.drawLabels(context, height);
    this.drawAxis(context, width);
  }

  /** The spans of each depth that are seen; after one is drawn, those that end within its pixel are jumped over. */
  drawLane(context, lane, y) {
    const scale = this.width / (this.to - this.from), pixel = 0.5 / scale;
    let colour = null;
    context.globalAlpha = 1;
    lane.levels.forEach((level, depth) => {
      const row = y + depth * ROW, count = level.begin.length;
      for (let at = Math.max(lastAtMost(level.begin, this.from), 0); at < count && level.begin[at] <= this.to;) {
        const i = level.index[at], end = lane.begin[i] + lane.length[i];
        if (end < this.from) { at++; continue; }
        const left = LABELS + (Math.max(lane.begin[i], this.from) - this.from) * scale;
        const wide = Math.max(LABELS + (Math.min(end, this.to) - this.from) * scale - left, 0.7);
        if (this.wanted) context.globalAlpha = this.wanted[lane.name[i]] ? 1 : 0.25;
        if (colour !== this.colour[lane.name[i]]) context.fillStyle = colour = this.colour[lane.name[i]];
        context.fillRect(left, row, wide, ROW - 2);
        if (wide > 30) {
          context.fillStyle = colour = "#fff";
          context.fillText(this.names[lane.name[i]].name, left + 3, row + ROW / 2 - 1, wide - 5);
        }
        if (this.selected && this.selected.lane === lane && this.selected.index === i) {
          context.strokeStyle = "#000"; context.lineWidth = 2; context.strokeRect(left, row, wide, ROW - 2);
        }
        this.drawn++;
        const seen = this.from + (left + wide - LABELS) / scale + pixel;
        at++;
        if (at < count && lane.begin[level.index[at]] + lane.length[level.index[at]] < seen) {
          at = Math.max(at, lastAtMost(level.begin, seen));
          if (lane.begin[level.index[at]] + lane.length[level.index[at]] < seen) at++;
        }
      }
    });
    context.globalAlpha = 1;
  }

  /** Arrows from senders to receivers; none where too many would be seen at once. */
  drawFlows(context) {
    const seen = this.flows.filter(([, , sent, , received]) => received >= this.from && sent <= this.to);
    this.drawnFlows = seen.length <= 2000 ? seen.length : 0;
    context.strokeStyle = context.fillStyle = "#7b341e"; context.lineWidth = 1;
    for (const [, source, sent, target, received] of this.drawnFlows ? seen : []) {
      const y = lane => AXIS + this.lanes[lane].y - this.top + ROW / 2, x = this.x(received), end = y(target);
      context.beginPath(); context.moveTo(this.x(sent), y(source)); context.lineTo(x, end); context.stroke();
      context.beginPath(); context.arc(x, end, 2.5, 0, 7); context.fill();
    }
  }

  /** Lines from the selected collective to its parts on other instances. */
  connect(context) {
    const from = this.place(this.selected);
    context.strokeStyle = "#000"; context.lineWidth = 1;
    for (const other of this.together(this.selected)) {
      const to = this.place(other);
      context.beginPath(); context.moveTo(from.x, from.y); context.lineTo(to.x, to.y); context.stroke();
    }
  }

  place({ lane, index }) {
    return { x: this.x(lane.begin[index]), y: AXIS + lane.y - this.top + lane.depth[index] * ROW + ROW / 2 };
  }

  drawLabels(context, height) {
    context.fillStyle = "#fff"; context.fillRect(0, AXIS, LABELS - 4, height);
    for (const lane of this.lanes) {
      const y = AXIS + lane.y - this.top;
      if (y > height || y + lane.rows * ROW < AXIS) continue;
      context.fillStyle = "#1f2933";
      context.fillText(lane.label, 6, Math.max(y, AXIS) + ROW / 2, LABELS - 12);
      context.fillStyle = "#e4e7eb"; context.fillRect(0, y + lane.rows * ROW + GAP / 2, this.canvas.clientWidth, 1);
    }
  }

  drawAxis(context, width) {
    context.fillStyle = "#f5f7fa"; context.fillRect(0, 0, width, AXIS);
    context.fillStyle = "#52606d";
    const step = roundStep(this.to - this.from, Math.max(2, this.width / 110));
    for (let mark = Math.ceil(this.from / step) * step; mark <= this.to; mark += step) {
      const x = this.x(mark);
      context.fillRect(x, AXIS - 5, 1, 5);
      context.fillText(timeText(mark, this.to, step), x + 3, AXIS / 2);
    }
  }
}

if (typeof module !== "undefined") module.exports = { Timeline, lastAtMost, roundStep, timeText };
