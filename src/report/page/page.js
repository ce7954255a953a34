'use strict';
// All that is shown comes from the JSON in #data. Text goes into the page as text nodes only, so that a name from an input
// file is never markup.

const data = JSON.parse(document.getElementById('data').textContent);
const COLOURS = Array.from({ length: 8 }, (_, i) => `var(--c${i})`);
const colour = (i) => COLOURS[i % COLOURS.length];
const SVG = 'http://www.w3.org/2000/svg';

function element(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}
function shape(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}
function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) if (value !== undefined) node.setAttribute(key, value);
  for (const child of children.flat(Infinity)) node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  return node;
}

// Numbers as people read them.
function digits(value) {
  const size = Math.abs(value);
  if (size === 0) return '0';
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2);
}
function scaled(value, unit, steps) {
  for (const [size, prefix] of steps) if (Math.abs(value) >= size) return `${digits(value / size)} ${prefix}${unit}`;
  return `${digits(value)} ${unit}`;
}
const si = (value, unit) => value === 0 ? `0 ${unit}` : scaled(value, unit,
  [[1e15, 'P'], [1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k'], [1, ''], [1e-3, 'm'], [1e-6, 'µ'], [1e-9, 'n'], [1e-12, 'p']]);
const bytes = (value) => scaled(value, 'B', [[2 ** 40, 'Ti'], [2 ** 30, 'Gi'], [2 ** 20, 'Mi'], [2 ** 10, 'Ki']]);
const whole = (value) => Math.round(value).toLocaleString('en-US');
const percent = (share) => `${digits(100 * share)} %`;

// Every run of every result, in order.
const runs = data.results.flatMap((result, at) => result.document.runs.map((run) => ({
  run, result: at, document: result.document,
  name: data.results.length > 1 ? `${result.title}: ${run.mode}` : run.mode,
})));
const offChip = (traffic) => traffic.off_chip_read_bytes + traffic.off_chip_write_bytes;

const body = document.getElementById('report');
function part(title, ...children) {
  const heading = element('h2', {}, title);
  const node = element('section', { 'aria-label': title }, heading, children);
  body.append(node);
  return node;
}
// Something that can be pointed at or focused, and what is told of it then.
function telling(node, told, text) {
  const tell = () => { told.textContent = text; };
  fill(node, { tabindex: 0, role: 'img', 'aria-label': text, class: 'mark' }, [shape('title', {}, text)]);
  node.addEventListener('pointerenter', tell);
  node.addEventListener('focus', tell);
  return node;
}
const told = () => element('p', { class: 'told', 'aria-live': 'polite' }, 'Point at a mark or move to it with Tab for its numbers.');
function legend(names, colours) {
  return element('ul', { class: 'legend' }, names.map((name, i) =>
    element('li', {}, element('span', { class: 'swatch', style: `background:${colours ? colours[i] : colour(i)}` }), name)));
}
function choice(label, options, changed) {
  const select = element('select', {}, options.map((name, i) => element('option', { value: i }, name)));
  select.addEventListener('change', () => changed(Number(select.value)));
  return { node: element('label', {}, `${label} `, select), select };
}

function summary() {
  for (const [at, result] of data.results.entries()) {
    const d = result.document;
    const title = `${d.workload.name} on ${d.arch.name}`;
    body.append(element('h1', {}, data.results.length > 1 ? `${result.title}: ${title}` : title));
    const line = element('div', { class: 'first' });
    const last = d.runs[d.runs.length - 1];
    if (d.speedup !== undefined) {
      line.append(element('strong', {}, `${digits(d.speedup)}×`),
        element('span', {}, `faster fused than kernel by kernel: ${si(last.time_s, 's')} instead of ${si(d.runs[0].time_s, 's')}, `
          + `with ${digits(d.off_chip_traffic_ratio)}× less off-chip traffic`));
    } else if (last) {
      line.append(element('strong', {}, si(last.time_s, 's')), element('span', {}, `${last.mode}, ${whole(last.cycles)} cycles`));
    }
    body.append(line, element('p', { class: 'faint' },
      `${whole(d.arch.pcus)} PCUs, ${whole(d.arch.pmus)} PMUs, ${digits(d.arch.peak_tflops)} TFLOP/s, ${bytes(d.arch.sram_bytes)} SRAM, `
      + `${digits(d.arch.off_chip_gb_per_s)} GB/s off chip; ${si(d.workload.dense_flops, 'FLOP')} dense, `
      + `${si(d.workload.executed_flops, 'FLOP')} executed; fidelity ${[...new Set(d.runs.map((r) => r.fidelity))].join(', ')}`));
  }
}

// name, value, text, whether less is better (undefined: neither)
const FIGURES = [
  ['time', (r) => r.time_s, (v) => si(v, 's'), true],
  ['cycles', (r) => r.cycles, whole, true],
  ['lower bound, cycles', (r) => r.bound_cycles, whole],
  ['share of the bound reached', (r) => r.bound_cycles / r.cycles, percent, false],
  ['launches', (r) => r.launches, whole, true],
  ['off-chip read', (r) => r.traffic.off_chip_read_bytes, bytes, true],
  ['off-chip write', (r) => r.traffic.off_chip_write_bytes, bytes, true],
  ['vector network', (r) => r.traffic.network_bytes, bytes, true],
  ['PMU read', (r) => r.traffic.sram_read_bytes, bytes, true],
  ['PMU write', (r) => r.traffic.sram_write_bytes, bytes, true],
  ['operational intensity', (r) => r.op_intensity_flop_per_byte, (v) => `${digits(v)} FLOP/B`, false],
  ['executed', (r) => r.tflops_executed, (v) => `${digits(v)} TFLOP/s`, false],
  ['dense equivalent', (r) => r.tflops_dense_equivalent, (v) => `${digits(v)} TFLOP/s`, false],
  ['utilisation of peak', (r) => r.utilization, percent, false],
  ['energy', (r) => r.energy_j.total, (v) => si(v, 'J'), true],
];
function figures() {
  const rows = FIGURES.map(([name, value, text, less]) => {
    const values = runs.map((r) => value(r.run));
    const best = less === undefined ? undefined : less ? Math.min(...values) : Math.max(...values);
    return element('tr', {}, element('th', { scope: 'row', class: 'text' }, name), runs.map((r, i) => {
      const other = data.results.length > 1 && r.result > 0
        ? runs.find((o) => o.result === 0 && o.run.mode === r.run.mode) : undefined;
      const before = other && value(other.run);
      const differs = other !== undefined && before !== values[i];
      const delta = differs && before > 0 ? element('span', { class: 'delta' }, ` ×${digits(values[i] / before)}`) : '';
      const marks = [values.length > 1 && values[i] === best ? 'better' : '', differs ? 'differs' : ''].join(' ').trim();
      return element('td', { class: marks || undefined }, text(values[i]), delta);
    }));
  });
  const head = element('tr', {}, element('th', { class: 'text' }, ''), runs.map((r) => element('th', { scope: 'col' }, r.name)));
  const note = data.results.length > 1
    ? 'Shaded cells differ from the same mode of the first result; the factor says by how much.' : 'Bold: the better of the runs.';
  part('Figures', element('div', { class: 'scroll' }, element('table', {}, element('thead', {}, head), element('tbody', {}, rows))),
    element('p', { class: 'faint' }, note));
  const notes = runs.flatMap((r) => r.run.notes.map((n) => element('li', {}, `${r.name}: ${n}`)));
  if (notes.length) part('Notes of the compiler', element('ul', {}, notes));
}

function logTicks(low, high) {
  const ticks = [];
  for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++) {
    const tick = 10 ** e;
    if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick);
  }
  return ticks;
}
function roofline() {
  const W = 720, H = 380, L = 70, R = 20, T = 20, B = 50;
  const points = runs.filter((r) => r.run.op_intensity_flop_per_byte > 0 && r.run.tflops_executed > 0);
  if (!points.length) return;
  const chips = [...new Map(runs.map((r) => [JSON.stringify([r.document.arch.name, r.document.arch.peak_tflops,
    r.document.arch.off_chip_gb_per_s]), r.document.arch])).values()];
  const ridges = chips.map((a) => a.peak_tflops * 1e3 / a.off_chip_gb_per_s);
  const xs = points.map((r) => r.run.op_intensity_flop_per_byte).concat(ridges);
  const ys = points.map((r) => r.run.tflops_executed).concat(chips.map((a) => a.peak_tflops));
  const x0 = 10 ** Math.floor(Math.log10(Math.min(...xs)) - 0.3), x1 = 10 ** Math.ceil(Math.log10(Math.max(...xs)) + 0.3);
  const y0 = 10 ** Math.floor(Math.log10(Math.min(...ys)) - 0.1), y1 = 10 ** Math.ceil(Math.log10(Math.max(...ys)) + 0.05);
  const x = (v) => L + (W - L - R) * Math.log(v / x0) / Math.log(x1 / x0);
  const y = (v) => H - B - (H - B - T) * Math.log(v / y0) / Math.log(y1 / y0);
  const svg = shape('svg', { viewBox: `0 0 ${W} ${H}`, role: 'group', 'aria-label': 'Roofline' });
  for (const t of logTicks(x0, x1)) svg.append(
    shape('line', { class: 'grid', x1: x(t), x2: x(t), y1: T, y2: H - B }),
    shape('text', { x: x(t), y: H - B + 18, 'text-anchor': 'middle', class: 'faint' }, whole(t)));
  for (const t of logTicks(y0, y1)) svg.append(
    shape('line', { class: 'grid', x1: L, x2: W - R, y1: y(t), y2: y(t) }),
    shape('text', { x: L - 8, y: y(t) + 4, 'text-anchor': 'end', class: 'faint' }, t >= 1 ? whole(t) : String(t)));
  svg.append(shape('text', { x: (L + W - R) / 2, y: H - 8, 'text-anchor': 'middle' }, 'FLOP per off-chip byte'),
    shape('text', { x: 14, y: (T + H - B) / 2, 'text-anchor': 'middle', transform: `rotate(-90 14 ${(T + H - B) / 2})` }, 'TFLOP/s executed'));
  const says = told();
  chips.forEach((arch, i) => {
    const ridge = ridges[i], slope = arch.off_chip_gb_per_s / 1e3;
    const from = Math.max(x0, y0 / slope);
    const path = `M${x(from)},${y(from * slope)} L${x(ridge)},${y(arch.peak_tflops)} L${x(x1)},${y(arch.peak_tflops)}`;
    svg.append(shape('path', { d: path, fill: 'none', stroke: 'var(--ink)', 'stroke-width': 2, 'stroke-dasharray': i ? '6 4' : undefined }),
      shape('text', { x: x(x1) - 4, y: y(arch.peak_tflops) - 6, 'text-anchor': 'end' }, `${arch.name}: ${digits(arch.peak_tflops)} TFLOP/s`));
  });
  points.forEach((r, i) => {
    const [v, w] = [r.run.op_intensity_flop_per_byte, r.run.tflops_executed];
    svg.append(telling(shape('circle', { cx: x(v), cy: y(w), r: 7, fill: colour(i), stroke: 'var(--paper)' }), says,
      `${r.name}: ${digits(v)} FLOP/B, ${digits(w)} TFLOP/s executed, ${percent(r.run.utilization)} of peak`));
  });
  part('Roofline', element('figure', {}, svg), legend(points.map((r) => r.name)), says);
}

// Rows of a name and pieces { name, value, fill, text }, as horizontal stacked bars.
function bars(label, rows, says, text) {
  const W = 720, L = 150, R = 90, step = 34;
  const most = Math.max(1e-300, ...rows.map((row) => row.pieces.reduce((sum, p) => sum + p.value, 0)));
  const svg = shape('svg', { viewBox: `0 0 ${W} ${rows.length * step + 10}`, role: 'group', 'aria-label': label });
  rows.forEach((row, at) => {
    const y = at * step + 6;
    let x = L;
    svg.append(shape('text', { x: L - 8, y: y + 16, 'text-anchor': 'end' }, row.name.length > 24 ? `${row.name.slice(0, 23)}…` : row.name));
    for (const piece of row.pieces) {
      const width = (W - L - R) * piece.value / most;
      svg.append(telling(shape('rect', { x, y, width: Math.max(width, 0.5), height: 22, fill: piece.fill, stroke: 'var(--paper)' }), says,
        `${row.name}, ${piece.name}: ${piece.text}`));
      x += width;
    }
    svg.append(shape('text', { x: x + 6, y: y + 16 }, text(row.pieces.reduce((sum, p) => sum + p.value, 0))));
  });
  return element('figure', {}, svg);
}
function traffic() {
  const names = [...new Set(runs.flatMap((r) => Object.keys(r.run.traffic.by_tensor)))];
  const size = (name) => Math.max(...runs.map((r) => { const t = r.run.traffic.by_tensor[name]; return t ? offChip(t) : 0; }));
  const shown = names.filter((n) => size(n) > 0).sort((a, b) => size(b) - size(a));
  const named = shown.slice(0, 7), rest = shown.slice(7);
  const says = told();
  const rows = runs.map((r) => {
    const pieces = named.map((name, i) => [name, r.run.traffic.by_tensor[name], colour(i)])
      .concat(rest.length ? [[`${rest.length} more tensors`, rest.reduce((sum, n) => {
        const t = r.run.traffic.by_tensor[n];
        return t ? { off_chip_read_bytes: sum.off_chip_read_bytes + t.off_chip_read_bytes,
          off_chip_write_bytes: sum.off_chip_write_bytes + t.off_chip_write_bytes } : sum;
      }, { off_chip_read_bytes: 0, off_chip_write_bytes: 0 }), colour(7)]] : []);
    return { name: r.name, pieces: pieces.filter(([, t]) => t && offChip(t) > 0).map(([name, t, tint]) => ({
      name, value: offChip(t), fill: tint,
      text: `${bytes(t.off_chip_read_bytes)} read, ${bytes(t.off_chip_write_bytes)} written off chip`,
    })) };
  });
  part('Off-chip traffic by tensor', bars('Off-chip traffic by tensor', rows, says, bytes),
    legend(named.concat(rest.length ? [`${rest.length} more`] : []), named.map((_, i) => colour(i)).concat([colour(7)])), says);
}
function energy() {
  const places = ['compute', 'sram', 'network', 'off_chip', 'static'];
  const says = told();
  const rows = runs.map((r) => ({ name: r.name, pieces: places.filter((p) => r.run.energy_j[p] > 0).map((p) => ({
    name: p.replace('_', ' '), value: r.run.energy_j[p], fill: colour(places.indexOf(p)), text: si(r.run.energy_j[p], 'J') })) }));
  part('Energy by place', bars('Energy by place', rows, says, (v) => si(v, 'J')), legend(places.map((p) => p.replace('_', ' '))), says);
}

const BOUNDS = ['compute', 'imbalance', 'memory', 'ag', 'link', 'pmu_port', 'launch', 'fill'];
const boundColour = (by) => colour(Math.max(0, BOUNDS.indexOf(by.split(':')[0])));
// Sections over time; drag, wheel, arrow keys and buttons move and zoom.
function timeline() {
  const W = 720, L = 110, row = 44, H = runs.length * row + 40;
  const all = Math.max(...runs.map((r) => r.run.cycles));
  let [from, to] = [0, all];
  const says = told();
  const svg = shape('svg', { viewBox: `0 0 ${W} ${H}`, tabindex: 0, role: 'group',
    'aria-label': 'Timeline of sections. Arrow keys move, plus and minus zoom, 0 shows all.' });
  function draw() {
    svg.replaceChildren();
    const x = (c) => L + (W - L - 10) * (c - from) / (to - from);
    runs.forEach((r, at) => {
      const y = at * row + 6;
      let start = 0;
      svg.append(shape('text', { x: L - 8, y: y + 20, 'text-anchor': 'end' }, r.name.length > 16 ? `${r.name.slice(0, 15)}…` : r.name));
      for (const s of r.run.sections) {
        const end = start + s.cycles, ready = start + s.launch_cycles;
        if (end > from && start < to) {
          const clip = (c) => Math.min(W - 10, Math.max(L, x(c)));
          const text = `${r.name}, ${s.name}: cycles ${whole(start)} to ${whole(end)}, of these ${whole(s.launch_cycles)} launch; `
            + `bound by ${s.bound_by}; ${s.pcus} PCUs, ${s.pmus} PMUs, ${bytes(offChip(s.traffic))} off chip`;
          svg.append(telling(shape('rect', { x: clip(start), y, width: Math.max(0.7, clip(end) - clip(start)), height: 30,
            fill: boundColour(s.bound_by), stroke: 'var(--paper)' }), says, text));
          if (ready > from) svg.append(shape('rect', { x: clip(start), y: y + 24, width: Math.max(0, clip(ready) - clip(start)), height: 6,
            fill: 'var(--ink)', 'pointer-events': 'none' }));
          if (clip(end) - clip(start) > 60) svg.append(shape('text', { x: clip(start) + 4, y: y + 18, 'pointer-events': 'none',
            style: 'fill: #fff; paint-order: stroke; stroke: #000; stroke-width: 2px' },
          s.name.slice(0, Math.max(3, Math.floor((clip(end) - clip(start)) / 9)))));
        }
        start = end;
      }
    });
    for (let i = 0; i <= 2; i++) {
      const c = from + (to - from) * i / 2;
      svg.append(shape('text', { x: Math.min(x(c), W - 10), y: H - 10, 'text-anchor': ['start', 'middle', 'end'][i], class: 'faint' },
        `${whole(c)}${i === 2 ? ' cycles' : ''}`));
    }
    svg.setAttribute('data-from', Math.round(from));
    svg.setAttribute('data-to', Math.round(to));
  }
  function view(start, length) {
    const span = Math.min(all, Math.max(all / 1e5, length));
    from = Math.min(Math.max(0, start), all - span);
    to = from + span;
    draw();
  }
  const zoom = (factor, at = 0.5) => view(from + (to - from) * at * (1 - factor), (to - from) * factor);
  const move = (share) => view(from + (to - from) * share, to - from);
  svg.addEventListener('keydown', (event) => {
    const act = { ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2), '+': () => zoom(0.5), '=': () => zoom(0.5),
      '-': () => zoom(2), 0: () => view(0, all) }[event.key];
    if (act && event.target === svg) { act(); event.preventDefault(); }
  });
  svg.addEventListener('wheel', (event) => {
    const box = svg.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width * W - L) / (W - L - 10);
    zoom(event.deltaY > 0 ? 1.25 : 0.8, Math.min(1, Math.max(0, at)));
    event.preventDefault();
  }, { passive: false });
  let grip;
  svg.addEventListener('pointerdown', (event) => { grip = { x: event.clientX, from }; });
  window.addEventListener('pointerup', () => { grip = undefined; });
  svg.addEventListener('pointermove', (event) => {
    if (!grip) return;
    const width = svg.getBoundingClientRect().width * (W - L - 10) / W;
    view(grip.from - (event.clientX - grip.x) / width * (to - from), to - from);
  });
  const button = (name, act) => { const b = element('button', { type: 'button' }, name); b.addEventListener('click', act); return b; };
  draw();
  const used = BOUNDS.filter((b) => runs.some((r) => r.run.sections.some((s) => s.bound_by.split(':')[0] === b)));
  part('Sections over time', element('div', { class: 'controls' }, button('zoom in', () => zoom(0.5)), button('zoom out', () => zoom(2)),
    button('earlier', () => move(-0.2)), button('later', () => move(0.2)), button('all', () => view(0, all))),
  element('figure', {}, svg), legend(used.map((b) => `bound by ${b}`), used.map(boundColour)),
  element('p', { class: 'faint' }, 'The dark foot of a bar is its launch.'), says);
}

function sections() {
  const rows = runs.flatMap((r) => r.run.sections.map((s) => element('tr', {},
    element('td', { class: 'text' }, r.name), element('td', { class: 'wrap' }, s.name), element('td', {}, whole(s.cycles)),
    element('td', {}, whole(s.launch_cycles)), element('td', { class: 'text' }, s.bound_by), element('td', {}, whole(s.pcus)),
    element('td', {}, whole(s.pmus)), element('td', {}, bytes(s.sram_peak_bytes)), element('td', {}, bytes(offChip(s.traffic))),
    element('td', {}, si(s.energy_j.total, 'J')))));
  const head = ['run', 'section', 'cycles', 'launch', 'bound by', 'PCUs', 'PMUs', 'SRAM', 'off chip', 'energy'];
  part('Sections', element('div', { class: 'scroll' }, element('table', {},
    element('thead', {}, element('tr', {}, head.map((h, i) => element('th', { scope: 'col', class: [0, 1, 4].includes(i) ? 'text' : undefined }, h)))),
    element('tbody', {}, rows))));
  const stages = runs.flatMap((r) => r.run.sections.flatMap((s) => s.stages.map((stage) => element('tr', {},
    element('td', { class: 'text' }, r.name), element('td', { class: 'wrap' }, stage.operators.join('+')), element('td', {}, whole(stage.pcus)),
    element('td', {}, percent(stage.busiest_cycles / Math.max(1, s.cycles))),
    element('td', {}, percent(stage.mean_cycles / Math.max(1, stage.busiest_cycles))), element('td', { class: 'wrap' }, stage.mapping)))));
  const stageHead = ['run', 'stage', 'PCUs', 'busy', 'balance', 'mapping'];
  part('Stages', element('div', { class: 'scroll' }, element('table', {},
    element('thead', {}, element('tr', {}, stageHead.map((h, i) => element('th', { scope: 'col', class: [0, 1, 5].includes(i) ? 'text' : undefined }, h)))),
    element('tbody', {}, stages))), element('p', { class: 'faint' },
    'busy: cycles of the busiest unit over the section’s; balance: the mean unit over the busiest.'));
}

summary();
if (runs.length) {
  figures();
  traffic();
  timeline();
  roofline();
}
if (data.layouts.length) grid();
if (runs.length) {
  energy();
  sections();
}
if (data.points) points();
inputs();
