// The number that matters, the figures of every run, and bars.

// The units of a chip by their names.
const units = (arch) => arch.kind === 'gpu' ? `${whole(arch.pcus)} SMs` : `${whole(arch.pcus)} PCUs, ${whole(arch.pmus)} PMUs`;

// What uncertain fields of the chip file allow (`--uncertainty`).
const drawn = (range, text) => range ? `, ${text(range[0])} to ${text(range[1])} as the chip file’s uncertain fields allow` : '';
const times = (v) => `${digits(v)}×`;
const rangeOf = (run, key) => (run.ranges || {})[key];
// What a ratio of the best mappings can be, as the gaps of both runs allow; results of other versions have none.
const allowed = (range) => range ? ` (${digits(range[0])}× to ${digits(range[1])}×, as the gaps allow)` : '';
const between = (slow, fast) => gapOf(slow) === undefined || gapOf(fast) === undefined ? undefined
  : [slow.time_s / fast.time_s / (1 + gapOf(slow)), slow.time_s / fast.time_s * (1 + gapOf(fast))];
const gapOf = (run) => typeof run.gap === 'number' ? run.gap : undefined;

function card(at) {
  const result = data.results[at], d = result.document;
  const title = `${d.workload.name} on ${d.arch.name}`;
  const last = d.runs[d.runs.length - 1];
  const of = (mode) => d.runs.find((run) => run.mode === mode);
  const line = element('div', { class: 'first' });
  if (d.speedup !== undefined) {
    line.append(element('strong', {}, `${digits(d.speedup)}×`),
      element('span', {}, `faster fused than kernel by kernel${allowed(d.speedup_range)}${drawn((d.uncertainty || {}).speedup, times)}: `
        + `${si(of('fused').time_s, 's')} instead of ${si(of('kbk').time_s, 's')}, `
        + (d.off_chip_traffic_ratio === null ? 'off-chip traffic in one of them only'
          : `with ${digits(d.off_chip_traffic_ratio)}× less off-chip traffic`)));
  } else if (last) {
    line.append(element('strong', {}, si(last.time_s, 's')), element('span', {}, `${last.mode}, ${whole(last.cycles)} cycles`
      + (last.cycles > 0 ? `, no less than ${si(last.time_s * last.bound_cycles / last.cycles, 's')} by the lower bound` : '')));
  }
  const epilogue = d.speedup_over_epilogue === undefined ? [] : [
    `${digits(d.speedup_over_epilogue)}× faster fused than with elementwise operators folded into the GEMM before them, as GPU libraries do`
      + `${allowed(d.speedup_over_epilogue_range)}${drawn((d.uncertainty || {}).speedup_over_epilogue, times)}: `
      + `${si(of('fused').time_s, 's')} instead of ${si(of('epilogue').time_s, 's')}`];
  const why = d.runs.map((run) => {
    const longest = run.sections.reduce((a, b) => (b.cycles > a.cycles ? b : a), run.sections[0]);
    return `${run.mode}: ${si(run.time_s, 's')}${drawn(rangeOf(run, 'time_s'), (v) => si(v, 's'))}, ${percent(run.utilization)} of peak, ${percent(run.bound_cycles / run.cycles)} of what the lower bound allows`
      + (gapOf(run) === undefined ? '' : `, at most ${percent(gapOf(run))} slower than the best mapping`)
      + (longest ? `, most of the time bound by ${longest.bound_by}` : '');
  });
  return element('div', {}, element('h1', {}, several ? `${titles[at]}: ${title}` : title), line,
    epilogue.concat(why).map((text) => element('p', {}, text)),
    element('p', { class: 'faint' },
      `${units(d.arch)}, ${digits(d.arch.peak_tflops)} TFLOP/s, ${bytes(d.arch.sram_bytes)} ${d.arch.kind === 'gpu' ? 'L2' : 'SRAM'}, `
      + `${digits(d.arch.off_chip_gb_per_s)} GB/s off chip; ${si(d.workload.dense_flops, 'FLOP')} dense, `
      + `${si(d.workload.executed_flops, 'FLOP')} executed; fidelity ${[...new Set(d.runs.map((r) => r.fidelity))].join(', ')}`),
    at ? '' : element('p', { class: 'faint' }, coded(data.accuracy)));
}
// The same mode of the first result.
const counterpart = (r) => r.result > 0 ? runs.find((o) => o.result === 0 && o.run.mode === r.run.mode) : undefined;
// Something of every chip of `--against` (against.rs).
const others = (of) => [of.against, ...of.against_further || []].filter((other) => other);
// The range of the headline's factor, where both chips were drawn.
function versus(r, faster) {
  const range = ((others(data.results[0].document.uncertainty || {})[r.result - 1] || {}).speedups || {})[r.run.mode];
  return range && faster ? [1 / range[1], 1 / range[0]] : range;
}
function summary() {
  if (several) {
    // The last mode of every other result, in their order.
    for (const r of data.results.flatMap((_, at) => [...runs].reverse().find((run) => run.result === at && counterpart(run)) || [])) {
      const before = counterpart(r), factor = before.run.time_s / r.run.time_s;
      const [a, b] = [titles[0], titles[r.result]];
      const faster = factor >= 1;
      body.append(element('div', { class: 'first' }, element('strong', {}, `${digits(faster ? factor : 1 / factor)}×`),
        element('span', {}, (factor === 1 ? `${b} takes as long as ${a}, ${r.run.mode}: ${si(r.run.time_s, 's')}`
          : `${b} is ${faster ? 'faster' : 'slower'} than ${a} by this factor, ${r.run.mode}: ${si(r.run.time_s, 's')} instead of ${si(before.run.time_s, 's')}`)
          + drawn(versus(r, faster), times)
          + allowed(between(faster ? before.run : r.run, faster ? r.run : before.run)))));
    }
  }
  body.append(element('div', { class: 'pair' }, data.results.map((_, at) => card(at))));
}

// name, value, text, whether less is better (undefined: neither)
const FIGURES = [
  ['time', (r) => r.time_s, (v) => si(v, 's'), true],
  ['cycles', (r) => r.cycles, whole, true],
  ['lower bound, cycles', (r) => r.bound_cycles, whole],
  ['share of the bound reached', (r) => r.bound_cycles / r.cycles, percent, false],
  ['gap to the best mapping', gapOf, (v) => v === undefined ? '–' : percent(v)],
  ['launches', (r) => r.launches, whole, true],
  ['off-chip read', (r) => r.traffic.off_chip_read_bytes, bytes, true],
  ['off-chip write', (r) => r.traffic.off_chip_write_bytes, bytes, true],
  ['vector network', (r) => r.traffic.network_bytes, bytes, true],
  ['SRAM read', (r) => r.traffic.sram_read_bytes, bytes, true],
  ['SRAM write', (r) => r.traffic.sram_write_bytes, bytes, true],
  ['operational intensity', (r) => r.op_intensity_flop_per_byte, (v) => `${digits(v)} FLOP/B`, false],
  ['executed', (r) => r.tflops_executed, (v) => `${digits(v)} TFLOP/s`, false],
  ['dense equivalent', (r) => r.tflops_dense_equivalent, (v) => `${digits(v)} TFLOP/s`, false],
  ['utilisation of peak', (r) => r.utilization, percent, false],
  ['energy', (r) => r.energy_j.total, (v) => si(v, 'J'), true],
  ['time, uncertain fields drawn', (r) => rangeOf(r, 'time_s'), (v) => v ? `${si(v[0], 's')} to ${si(v[1], 's')}` : '–'],
  ['energy, uncertain fields drawn', (r) => rangeOf(r, 'energy_j'), (v) => v ? `${si(v[0], 'J')} to ${si(v[1], 'J')}` : '–'],
  ['average power', (r) => r.energy_j.total / r.time_s, (v) => si(v, 'W')],
];
// What became of a figure, in a sign, a word and a colour.
function change(before, now, less) {
  if (before === now) return element('td', { class: 'same' }, '=');
  const factor = before > 0 && now > 0 ? Math.max(now / before, before / now) : undefined;
  const by = factor === undefined ? '' : factor < 1.0005 ? 'a hair' : factor < 1.1 ? `${digits((factor - 1) * 100)} %` : `${digits(factor)}×`;
  const sign = now > before ? '▲' : '▼';
  const better = less === undefined ? undefined : (now < before) === less;
  const word = better === undefined ? (now > before ? 'more' : 'less') : better ? 'better' : 'worse';
  return element('td', { class: `change ${word}` }, `${sign} ${by ? `${by} ` : ''}${word}`);
}
function figures() {
  // Runs of one mode stand side by side.
  const modes = [...new Set(runs.map((r) => r.run.mode))];
  const columns = several ? modes.flatMap((mode) => runs.filter((r) => r.run.mode === mode)) : runs;
  const head = ['', ...columns.flatMap((r) => counterpart(r) ? [r.name, `against ${titles[0]}`] : [r.name])];
  // Ranges stand there where they were asked for.
  const rows = FIGURES.filter(([, value, , less]) => less !== undefined || columns.some((r) => value(r.run) !== undefined)).map(([name, value, text, less]) => {
    const values = columns.map((r) => value(r.run));
    const best = less === undefined || several ? undefined : less ? Math.min(...values) : Math.max(...values);
    return [name, ...columns.flatMap((r, i) => {
      const isBest = best !== undefined && values.length > 1 && values[i] === best;
      const cell = element('td', { class: isBest ? 'better-run' : Array.isArray(values[i]) ? 'range' : undefined }, text(values[i]));
      const other = counterpart(r);
      // Cycles of different clocks are neither better nor worse.
      const clock = (run) => run.cycles / run.time_s;
      const same = !other || Math.abs(clock(other.run) / clock(r.run) - 1) < 1e-6;
      // What the other kind of chip does not have is neither more nor less.
      const alien = other && other.document.arch.kind !== r.document.arch.kind && (value(other.run) === 0 || values[i] === 0);
      if (alien || (other && (values[i] === undefined || Array.isArray(values[i]) || value(other.run) === undefined))) return [cell, element('td', { class: 'same' }, '–')];
      return other ? [cell, change(value(other.run), values[i], name === 'cycles' && !same ? undefined : less)] : [cell];
    })];
  });
  part('Figures', table(head, rows, [0]), element('p', { class: 'faint' },
    several ? `Signs say what became of the figure of ${titles[0]}: ▲ more, ▼ less, = the same.` : columns.length > 1 ? 'Bold: the better of the runs.' : ''));
  const of = data.results.flatMap(({ document: d }) => [...d.speedup_notes || [], ...others(d).flatMap((other) => [
    ...other.speedup_notes || [], ...(other.not_like_for_like || []).map((line) => `not like for like: ${line}`)])]);
  const notes = [...new Set(of)].map((line) => element('li', {}, coded(line)))
    .concat(runs.flatMap((r) => r.run.notes.map((n) => element('li', {}, `${r.name}: `, coded(n)))));
  if (notes.length) part('Remarks', element('ul', {}, notes));
}

// Rows of a name and pieces { name, value, fill, text }, as horizontal stacked bars.
function bars(label, rows, says, text) {
  return picture((figure, W) => {
    const longest = Math.max(...rows.map((row) => pen.measureText(row.name).width));
    const sums = rows.map((row) => row.pieces.reduce((sum, p) => sum + p.value, 0));
    const narrow = W < 560, L = narrow ? 4 : Math.min(Math.max(150, longest + 14), W * 0.45), step = narrow ? 52 : 34;
    // Behind the longest bar there is room for the widest number.
    const R = 12 + Math.max(...sums.map((sum) => pen.measureText(text(sum)).width)), most = Math.max(1e-300, ...sums);
    const svg = shape('svg', { viewBox: `0 0 ${W} ${rows.length * step + 10}`, role: 'group', 'aria-label': label });
    rows.forEach((row, at) => {
      const y = at * step + (narrow ? 22 : 6);
      let x = L;
      svg.append(narrow ? shape('text', { x: L, y: y - 6 }, fit(row.name, W - L))
        : shape('text', { x: L - 8, y: y + 16, 'text-anchor': 'end' }, fit(row.name, L - 12)));
      for (const piece of row.pieces) {
        const width = (W - L - R) * piece.value / most;
        svg.append(telling(shape('rect', { x, y, width: Math.max(width, 0.5), height: 22, fill: piece.fill, stroke: 'var(--paper)' }), says,
          `${row.name}, ${piece.name}: ${piece.text}`));
        x += width;
      }
      svg.append(shape('text', { x: x + 6, y: y + 16 }, text(sums[at])));
    });
    figure.replaceChildren(roving(svg));
  });
}
function traffic() {
  const names = [...new Set(runs.flatMap((r) => Object.keys(r.run.traffic.by_tensor)))];
  const size = (name) => Math.max(...runs.map((r) => { const t = r.run.traffic.by_tensor[name]; return t ? offChip(t) : 0; }));
  const shown = names.filter((n) => size(n) > 0).sort((a, b) => size(b) - size(a));
  if (!shown.length) return;
  // Eight have a name each: one beyond the colours would be a rest of its own.
  const most = shown.length === 8 ? 8 : 7, named = shown.slice(0, most), rest = shown.slice(most);
  const says = told();
  const none = { off_chip_read_bytes: 0, off_chip_write_bytes: 0 };
  const rows = runs.map((r) => {
    const of = (name) => r.run.traffic.by_tensor[name] || none;
    const sum = (list) => list.reduce((s, n) => ({ off_chip_read_bytes: s.off_chip_read_bytes + of(n).off_chip_read_bytes,
      off_chip_write_bytes: s.off_chip_write_bytes + of(n).off_chip_write_bytes }), none);
    const pieces = named.map((name, i) => [name, of(name), i])
      .concat(rest.length ? [[`${rest.length} more tensors`, sum(rest), 7]] : []);
    const text = (t) => `${bytes(t.off_chip_read_bytes)} read, ${bytes(t.off_chip_write_bytes)} written off chip`;
    return { name: r.name, pieces: pieces.flatMap(([name, t, tint]) => [
      { name, value: t.off_chip_read_bytes, fill: colour(tint), text: text(t) },
      { name, value: t.off_chip_write_bytes, fill: hatched(tint), text: text(t) }]).filter((piece) => piece.value > 0) };
  });
  const cell = (t) => t ? bytes(offChip(t)) : '–';
  const head = ['tensor', ...runs.flatMap((r) => counterpart(r) ? [r.name, `against ${titles[0]}`] : [r.name])];
  const lines = shown.slice(0, 40).map((name) => [name, ...runs.flatMap((r) => {
    const [now, other] = [r.run.traffic.by_tensor[name], counterpart(r)];
    if (!other) return [cell(now)];
    return [cell(now), change(offChip(other.run.traffic.by_tensor[name] || none), offChip(now || none), true)];
  })]);
  started(part('Off-chip traffic by tensor', bars('Off-chip traffic by tensor', rows, says, bytes),
    legend(named.concat(rest.length ? [`${rest.length} more`] : []), named.map((_, i) => colour(i)).concat([colour(7)])),
    element('p', { class: 'faint' }, 'Solid: read. Striped: written.'), says,
    element('details', { open: several ? '' : undefined }, element('summary', {}, 'as a table'), table(head, lines),
      shown.length > 40 ? element('p', { class: 'faint' }, `${shown.length - 40} smaller ones are in result.json`) : '')));
}
function energy() {
  const places = ['compute', 'sram', 'network', 'off_chip', 'static'];
  const says = told();
  const rows = runs.map((r) => ({ name: r.name, pieces: places.filter((p) => r.run.energy_j[p] > 0).map((p) => ({
    name: p.replace('_', ' '), value: r.run.energy_j[p], fill: colour(places.indexOf(p)),
    text: `${si(r.run.energy_j[p], 'J')}, ${percent(r.run.energy_j[p] / r.run.energy_j.total)}` })) }));
  if (rows.every((row) => !row.pieces.length)) return;
  started(part('Energy by place', bars('Energy by place', rows, says, (v) => si(v, 'J')), legend(places.map((p) => p.replace('_', ' '))), says));
}

function sections() {
  // A GPU has neither PCUs nor PMUs.
  const gpus = data.results.filter((result) => result.document.arch.kind === 'gpu').length;
  const compute = gpus === data.results.length ? 'SMs' : gpus ? 'PCUs or SMs' : 'PCUs';
  const head = ['run', 'section', 'cycles', 'launch', 'bound by', compute, 'PMUs', 'SRAM', 'off chip', 'energy'];
  // Of another result's section of the same operators, what differs.
  const same = (r, s) => { const other = counterpart(r); return other && other.run.sections.find((o) => o.name === s.name); };
  const rows = runs.flatMap((r) => r.run.sections.map((s) => {
    const o = same(r, s), gone = several && r.result > 0 && !o;
    const cell = (value, before) => o && before !== value ? element('td', { class: 'differs' }, element('strong', {}, value), ` was ${before}`) : value;
    const put = (get, text = String) => cell(text(get(s)), o && text(get(o)));
    return [r.name, gone ? element('td', { class: 'wrap differs' }, element('strong', {}, s.name), ' only here') : s.name,
      put((q) => q.cycles, whole), put((q) => q.launch_cycles, whole), put((q) => q.bound_by), put((q) => q.pcus, whole),
      r.document.arch.kind === 'gpu' ? '–' : put((q) => q.pmus, whole), r.document.arch.kind === 'gpu' ? '–' : put((q) => q.sram_peak_bytes, bytes), put((q) => offChip(q.traffic), bytes), put((q) => q.energy_j.total, (v) => si(v, 'J'))];
  }));
  part('Sections', table(head, rows, [0, 1, 4]));
  const stages = runs.flatMap((r) => r.run.sections.flatMap((s) => s.stages.map((stage) => [
    r.name, stage.operators.join('+'), whole(stage.pcus), percent(stage.busiest_cycles / Math.max(1, s.cycles)),
    percent(stage.mean_cycles / Math.max(1, stage.busiest_cycles)), stage.mapping])));
  part('Stages', table(['run', 'stage', compute, 'busy', 'balance', 'mapping'], stages, [0, 1, 5]), element('p', { class: 'faint' },
    'busy: cycles of the busiest unit over the section’s; balance: the mean unit over the busiest.'));
}
