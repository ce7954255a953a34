// Points of a sweep: any column against any other as points, lines or a heat map, with what no point beats, and as a table.

// A value in the unit that its column's name ends in.
const UNITS = [[/gb_per_s$/, (v) => `${digits(v)} GB/s`], [/_s$/, (v) => si(v, 's')], [/_bytes$|byte_hops$/, bytes], [/_j$/, (v) => si(v, 'J')], [/_w$/, (v) => si(v, 'W')],
  [/_mm2$/, (v) => `${digits(v)} mm²`], [/_ghz$/, (v) => `${digits(v)} GHz`], [/_tflops$|^.*tflops_\w+$/, (v) => `${digits(v)} TFLOP/s`],
  [/utilization$|density$|\.gap$/, percent], [/speedup(_over_epilogue)?(_least|_most)?$|ratio$/, (v) => `${digits(v)}×`]];
function shown(column, value) {
  if (value === null || value === undefined) return '–';
  if (typeof value !== 'number') return column === 'arch' || column === 'workload' ? value.replace(/^.*\/|\.toml$/g, '') : String(value);
  const unit = UNITS.find(([name]) => name.test(column));
  if (unit) return unit[1](value);
  return Number.isInteger(value) ? whole(value) : Math.abs(value) >= 1e5 ? si(value, '') : digits(value);
}
// The shortest end of a path that no other column has.
function labels(columns) {
  return columns.map((column) => {
    const keys = column.split('.');
    for (let n = Math.min(2, keys.length); n <= keys.length; n++) {
      const end = keys.slice(-n).join('.');
      if (columns.filter((other) => other === end || other.endsWith(`.${end}`)).length === 1) return end;
    }
    return column;
  });
}

function lead() {
  // What the gaps of both runs, or uncertain fields, allow.
  const range = (column, row) => [['_least', '_most', 'as the gaps allow'], ['_p5', '_p95', 'as the chip file’s uncertain fields allow']].map(([low, high, why]) => {
    const ends = [low, high].map((end) => row[columns.indexOf(column + end)]);
    return ends.every((end) => typeof end === 'number') ? ` (${shown(column, ends[0])} to ${shown(column, ends[1])}, ${why})` : '';
  }).join('');
  const { name, columns, best, rows, axes, all, lead: lines } = data.points;
  const names = labels(columns);
  body.append(element('h1', {}, name));
  const found = best.find((b) => b.row !== null);
  const line = element('div', { class: 'first' });
  if (found) {
    const at = columns.indexOf(found.column), row = rows[found.row];
    line.append(element('strong', {}, shown(found.column, row[at])), element('span', {},
      `${found.maximize ? 'most' : 'least'} ${found.column}${found.subject_to ? ` with ${found.subject_to}` : ''}: `
      + row.slice(0, axes).map((v, c) => `${names[c]} ${shown(columns[c], v)}`).join(', ') + range(found.column, row)));
  } else line.append(element('strong', {}, whole(all)), element('span', {}, 'points'));
  body.append(line, ...lines.map((text) => element('p', { class: 'faint' }, text)));
}

// Places of a column's values along an axis: numbers where all are, else words one beside the other.
function axisOf(rows, c, words) {
  const values = rows.map((row) => row[c]).filter((v) => v !== null);
  if (!words && values.every((v) => typeof v === 'number')) {
    let [min, max] = [Infinity, -Infinity];
    for (const v of values) { min = Math.min(min, v); max = Math.max(max, v); }
    const log = min > 0 && max / min >= 8;
    const f = log ? Math.log : (v) => v;
    const pad = (f(max) - f(min)) * 0.05 || Math.abs(f(max)) * 0.05 || 1;
    const [low, high] = [f(min) - pad, f(max) + pad];
    const distinct = [...new Set(values)].sort((a, b) => a - b);
    // Where values are few, they are the ticks; else round numbers.
    let ticks = distinct;
    if (distinct.length > 7) {
      if (log) {
        ticks = [];
        for (let e = Math.floor(Math.log10(min)); e <= Math.ceil(Math.log10(max)); e++) for (const m of [1, 2, 5]) ticks.push(m * 10 ** e);
        if (max / min > 200) ticks = ticks.filter((t) => String(t.toExponential())[0] === '1');
      } else {
        const rough = (max - min) / 5, unit = 10 ** Math.floor(Math.log10(rough || 1));
        const step = [1, 2, 5, 10].map((m) => m * unit).find((s) => s >= rough) || unit;
        ticks = Array.from({ length: 12 }, (_, i) => (Math.ceil(min / step) + i) * step);
      }
    }
    return { at: (v) => (f(v) - low) / (high - low), ticks: ticks.filter((t) => f(t) >= low && f(t) <= high), log, numeric: true };
  }
  const distinct = [...new Set(values)];
  if (distinct.every((v) => typeof v === 'number')) distinct.sort((a, b) => a - b);
  return { at: (v) => (distinct.indexOf(v) + 0.5) / distinct.length, ticks: distinct, numeric: false, count: distinct.length };
}

// Rows that no other beats in two columns: one pass over them in the order of the first.
function front(rows, x, y, lowX, lowY) {
  const cost = (row) => [lowX ? row[x] : -row[x], lowY ? row[y] : -row[y]];
  const sorted = rows.map((row) => [cost(row), row]).sort(([a], [b]) => a[0] - b[0] || a[1] - b[1]);
  const best = [];
  let least = Infinity, same;
  for (const [[a, b], row] of sorted) {
    if (b < least) { best.push(row); least = b; same = a; } else if (b === least && a === same) best.push(row);
  }
  return best;
}

const MOST_SERIES = 8;
const KINDS = ['points', 'lines', 'heat map'];
function points() {
  const { columns, rows, axes, minimize, maximize, views, all } = data.points;
  const names = labels(columns);
  const varies = columns.map((_, c) => new Set(rows.map((row) => JSON.stringify(row[c]))).size > 1);
  const numeric = columns.map((_, c) => rows.some((row) => row[c] !== null) && rows.every((row) => row[c] === null || typeof row[c] === 'number'));
  const usable = columns.map((_, c) => c).filter((c) => varies[c] && columns[c] !== 'status');
  if (usable.length < 2) {
    pointTable();
    return;
  }
  const at = (name) => columns.indexOf(name);
  const higher = (c) => maximize.includes(columns[c]) || (!minimize.includes(columns[c]) && /speedup|utilization|tflops|ratio|intensity/.test(columns[c]));
  const metric = usable.find((c) => c >= axes && numeric[c] && (minimize.includes(columns[c]) || maximize.includes(columns[c])))
    ?? usable.find((c) => c >= axes && numeric[c]) ?? usable[1];
  const state = { kind: 0, x: usable[0] === metric ? usable[1] : usable[0], y: metric, colour: -1, lowX: true, lowY: true };
  const says = told();
  const key = element('div', {});
  const note = element('p', { class: 'faint' });

  const text = (row) => columns.map((name, c) => `${names[c]} ${shown(name, row[c])}`).join(', ');
  // Colours: of few values one each, of many numbers a ramp.
  function paint(list) {
    const c = state.colour;
    if (c < 0) return { of: () => 'var(--c0)', kind: () => 0, key: '' };
    const distinct = [...new Set(list.map((row) => row[c]))];
    if (distinct.every((v) => typeof v === 'number')) distinct.sort((a, b) => a - b);
    if (distinct.length <= MOST_SERIES || !numeric[c]) {
      const i = (row) => distinct.indexOf(row[c]);
      return { of: (row) => colour(i(row)), kind: i, key: legend(distinct.map((v) => `${names[c]} ${shown(columns[c], v)}`)), distinct };
    }
    const scale = axisOf(list, c);
    return { of: (row) => heat(scale.at(row[c])), kind: () => 0,
      key: legend(scale.ticks.map((t) => `${names[c]} ${shown(columns[c], t)}`), scale.ticks.map((t) => heat(scale.at(t)))) };
  }
  function frame(svg, W, H, box, x, y) {
    const { L, R, T, B } = box;
    const px = (v) => L + (W - L - R) * x.at(v), py = (v) => H - B - (H - B - T) * y.at(v);
    let last = -Infinity;
    x.ticks.forEach((t) => {
      const label = cut(shown(columns[state.x], t), 16);
      svg.append(shape('line', { class: 'grid', x1: px(t), x2: px(t), y1: T, y2: H - B }));
      if (px(t) - last > label.length * 4 + 8) {
        svg.append(shape('text', { x: px(t), y: H - B + 17, 'text-anchor': 'middle', class: 'faint' }, label));
        last = px(t) + label.length * 4;
      }
    });
    let lastY = Infinity;
    y.ticks.forEach((t) => {
      svg.append(shape('line', { class: 'grid', x1: L, x2: W - R, y1: py(t), y2: py(t) }));
      if (lastY - py(t) > 14) {
        svg.append(shape('text', { x: L - 6, y: py(t) + 4, 'text-anchor': 'end', class: 'faint' }, cut(shown(columns[state.y], t), 14)));
        lastY = py(t);
      }
    });
    svg.append(shape('text', { x: (L + W - R) / 2, y: H - 6, 'text-anchor': 'middle' }, `${names[state.x]}${x.log ? ' (log)' : ''}`),
      shape('text', { x: 14, y: (T + H - B) / 2, 'text-anchor': 'middle', transform: `rotate(-90 14 ${(T + H - B) / 2})` }, `${names[state.y]}${y.log ? ' (log)' : ''}`));
    return { px, py };
  }
  const figure = picture((place, W) => {
    const H = Math.min(460, Math.max(300, W * 0.52)), box = { L: W < 560 ? 78 : 104, R: 30, T: 12, B: 46 };
    const isHeat = state.kind === 2;
    const needed = [state.x, state.y].concat(isHeat && state.colour >= 0 ? [state.colour] : []);
    const list = rows.filter((row) => needed.every((c) => row[c] !== null));
    const svg = shape('svg', { viewBox: `0 0 ${W} ${H}`, role: 'group', 'aria-label': `${names[state.y]} over ${names[state.x]}` });
    const x = axisOf(list, state.x, isHeat), y = axisOf(list, state.y, isHeat);
    const { px, py } = frame(svg, W, H, box, x, y);
    const missing = rows.length - list.length;
    note.textContent = missing ? `${missing} of ${rows.length} points have no value here. ` : '';
    if (isHeat) {
      const c = state.colour < 0 ? metric : state.colour;
      const values = numeric[c] ? axisOf(list, c) : undefined;
      const [w, h] = [(W - box.L - box.R) / x.count, (H - box.T - box.B) / y.count];
      // Of several points in one place the best is shown.
      const better = (a, b) => higher(c) ? a[c] > b[c] : a[c] < b[c];
      const cells = new Map();
      for (const row of list) {
        const spot = JSON.stringify([row[state.x], row[state.y]]);
        if (!cells.has(spot) || better(row, cells.get(spot))) cells.set(spot, row);
      }
      const tint = values ? undefined : paint(list);
      for (const row of cells.values()) {
        const [cx, cy] = [px(row[state.x]), py(row[state.y])];
        const share = values ? values.at(row[c]) : 0;
        svg.append(telling(shape('rect', { x: cx - w / 2 + 1, y: cy - h / 2 + 1, width: Math.max(1, w - 2), height: Math.max(1, h - 2), fill: values ? heat(share) : tint.of(row) }), says, text(row)));
        const label = shown(columns[c], row[c]);
        if (w > label.length * 7.5 && h > 16) svg.append(shape('text', { x: cx, y: cy + 4, 'text-anchor': 'middle', 'pointer-events': 'none',
          style: values ? `fill:${share > 0.55 ? '#000' : '#fff'}` : undefined, class: values ? undefined : 'on' }, label));
      }
      key.replaceChildren(values ? legend(values.ticks.map((t) => `${names[c]} ${shown(columns[c], t)}`), values.ticks.map((t) => heat(values.at(t)))) : tint.key);
      if (list.length > cells.size) note.textContent += `Of points in one place the one with the ${higher(c) ? 'most' : 'least'} ${names[c]} is shown.`;
    } else {
      const tint = paint(list);
      const best = x.numeric && y.numeric && state.kind === 0 ? front(list, state.x, state.y, state.lowX, state.lowY) : [];
      const outstanding = new Set(best);
      if (best.length > 1) svg.append(shape('path', { d: best.map((row, i) => `${i ? 'L' : 'M'}${px(row[state.x])},${py(row[state.y])}`).join(' '), class: 'front' }));
      if (state.kind === 1) {
        const series = new Map();
        for (const row of list) {
          const name = state.colour < 0 ? '' : JSON.stringify(row[state.colour]);
          series.set(name, (series.get(name) || []).concat([row]));
        }
        for (const line of series.values()) {
          line.sort((a, b) => px(a[state.x]) - px(b[state.x]));
          svg.append(shape('path', { d: line.map((row, i) => `${i ? 'L' : 'M'}${px(row[state.x])},${py(row[state.y])}`).join(' '), fill: 'none', stroke: tint.of(line[0]), 'stroke-width': 2 }));
        }
      }
      const r = list.length > 2000 ? 2.5 : list.length > 300 ? 3.5 : 5;
      // In the order of the axis, so that the arrow keys go from left to right; the front is drawn last.
      const order = [...list].sort((a, b) => px(a[state.x]) - px(b[state.x]));
      for (const row of order.filter((row) => !outstanding.has(row)).concat(order.filter((row) => outstanding.has(row)))) {
        const big = outstanding.has(row);
        svg.append(telling(mark(tint.kind(row), px(row[state.x]), py(row[state.y]), big ? r + 2 : r,
          { fill: tint.of(row), stroke: big ? 'var(--ink)' : 'var(--paper)', 'stroke-width': big ? 2 : 0.5, 'data-front': big ? '' : undefined }), says, text(row)));
      }
      key.replaceChildren(tint.key);
      if (best.length) note.textContent += `${best.length > 1 ? `Large marks on the dashed line: the ${best.length} points` : 'Large mark: the point'} that no other beats in both, taking ${state.lowX ? 'less' : 'more'} `
        + `${names[state.x]} and ${state.lowY ? 'less' : 'more'} ${names[state.y]} for better.`;
    }
    place.replaceChildren(roving(svg));
  });
  figure.classList.add('points');

  const controls = {
    kind: choice('as', KINDS, (i) => { state.kind = i; changed(); }),
    x: choice('across', usable.map((c) => names[c]), (i) => { state.x = usable[i]; state.lowX = !higher(state.x); changed(); }),
    y: choice('up', usable.map((c) => names[c]), (i) => { state.y = usable[i]; state.lowY = !higher(state.y); changed(); }),
    colour: choice('colour', ['none', ...usable.map((c) => names[c])], (i) => { state.colour = i ? usable[i - 1] : -1; changed(); }),
    lowX: choice('better across', ['low', 'high'], (i) => { state.lowX = i === 0; changed(); }),
    lowY: choice('better up', ['low', 'high'], (i) => { state.lowY = i === 0; changed(); }),
  };
  const view = choice('view', [...views.map((v) => v.title), 'own choice'], (i) => { if (views[i]) show(views[i]); });
  function put() {
    controls.kind.select.value = state.kind;
    controls.x.select.value = usable.indexOf(state.x);
    controls.y.select.value = usable.indexOf(state.y);
    controls.colour.select.value = state.colour < 0 ? 0 : usable.indexOf(state.colour) + 1;
    controls.lowX.select.value = state.lowX ? 0 : 1;
    controls.lowY.select.value = state.lowY ? 0 : 1;
    controls.lowX.node.hidden = controls.lowY.node.hidden = state.kind !== 0;
  }
  function changed() { view.select.value = views.length; put(); figure.redraw(); }
  function show(v) {
    const [x, y] = [at(v.x), at(v.y)];
    if (!usable.includes(x) || !usable.includes(y)) return;
    Object.assign(state, { kind: { lines: 1, heat: 2, pareto: 0 }[v.kind], x, y, colour: v.colour && usable.includes(at(v.colour)) ? at(v.colour) : -1, lowX: !higher(x), lowY: !higher(y) });
    put();
    figure.redraw();
  }
  state.lowX = !higher(state.x);
  state.lowY = !higher(state.y);
  put();
  const node = part('Points', element('div', { class: 'controls' }, views.length ? view.node : '', Object.values(controls).map((c) => c.node)), figure, key, note, says);
  started(node);
  if (views.length) { view.select.value = 0; show(views[0]); }
  pointTable();

  function pointTable() {
    const outstanding = new Set(data.points.front.map((i) => rows[i]));
    let by = -1, down = false, most = 50;
    const holder = element('div', {});
    const more = element('button', { type: 'button' }, 'show all');
    more.addEventListener('click', () => { most = Infinity; draw(); });
    function draw() {
      const order = [...rows];
      const rank = (v) => v === null ? Infinity : v;
      if (by >= 0) order.sort((a, b) => {
        const [p, q] = [rank(a[by]), rank(b[by])];
        const less = typeof p === 'number' && typeof q === 'number' ? p - q : String(p).localeCompare(String(q));
        return down ? -less || 0 : less || 0;
      });
      const head = columns.map((name, c) => {
        // Names may be broken behind their signs.
        const words = names[c].split(/(?<=[._])/).flatMap((piece) => [piece, element('wbr')]);
        const button = element('button', { type: 'button', class: 'sort', title: name }, words, by === c ? (down ? ' ▼' : ' ▲') : '');
        button.addEventListener('click', () => { down = by === c && !down; by = c; draw(); holder.querySelectorAll('button.sort')[c].focus(); });
        return button;
      });
      const list = order.slice(0, most).map((row) => [outstanding.has(row) ? '★' : '', ...row.map((v, c) => shown(columns[c], v))]);
      holder.replaceChildren(table(['', ...head], list));
      more.hidden = most >= rows.length;
    }
    draw();
    part('All points', holder, more, element('p', { class: 'faint' },
      `${outstanding.size ? `★: no other point beats it in all of ${data.points.front_of.join(', ')}. ` : ''}Headings sort. results.csv has every digit.`
      + (all > rows.length ? ` Of ${whole(all)} points these ${whole(rows.length)} are shown: every one of the front, evenly chosen among the others.` : '')));
  }
}
