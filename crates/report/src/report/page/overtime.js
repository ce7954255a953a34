// Power, off-chip bandwidth, working units and on-chip memory over time: a panel a run, stacked, section by section.

const PLACES = ['compute', 'sram', 'network', 'off_chip', 'static'];
// As in the pictures (chart/palette.rs): of tiers by row, of what on-chip memory holds.
const USES = { weights: 0, activations: 1, sums: 2, results: 3, prefetched: 4, tiles: 7 };
const TIERS = [5, 1];
function overTime() {
  const all = Math.max(...runs.map((r) => r.run.time_s));
  if (!(all > 0)) return;
  const of = (key) => [...new Set(runs.flatMap((r) => r.run.sections.flatMap((s) => Object.keys(s[key] || {}))))];
  const tiers = of('off_chip_by_tier').filter((tier) => runs.some((r) => r.run.sections.some((s) => (s.off_chip_by_tier || {})[tier] > 0)));
  const uses = of('sram_by_use');
  const named = (list, colourOf) => list.map((name, i) => ({ name: name.replace('_', ' '), key: name, fill: colour(colourOf(name, i)) }));
  const worked = (s) => s.stages.reduce((sum, stage) => sum + stage.mean_cycles * stage.pcus, 0);
  // Of a section: a value for each layer, in its launch and behind it; `time`: seconds behind the launch, `whole`: all of them.
  const kinds = [
    { name: 'average power', unit: (v) => si(v, 'W'), layers: named(PLACES, (_, i) => i),
      value: (s, key, time, whole) => key === 'static' ? s.energy_j.static / whole : s.energy_j[key] / time },
    { name: 'off-chip bandwidth', unit: (v) => si(v, 'B/s'), layers: named(tiers, (_, i) => TIERS[Math.min(i, 1)]),
      value: (s, key, time) => ((s.off_chip_by_tier || {})[key] || 0) / time },
    { name: 'units working', unit: percent, most: 1, layers: named(['working'], () => 0),
      value: (s, key, time, whole, r) => worked(s) / Math.max(1, r.document.arch.pcus) / Math.max(1, s.cycles * time / whole) },
    { name: 'on-chip memory', unit: bytes, layers: named(uses, (name) => USES[name] ?? 7), value: (s, key) => (s.sram_by_use || {})[key] || 0 },
  ].filter((kind) => kind.layers.length);
  const levels = (kind, r) => {
    const tick = r.run.time_s / Math.max(1, r.run.cycles);
    let start = 0;
    return r.run.sections.flatMap((s) => {
      // Several launches lie between the repetitions of a section.
      const launch = (s.launches || s.repeat || 1) === 1 ? Math.min(s.launch_cycles, s.cycles) : 0;
      const [from, ready, to] = [start, start + launch, start += s.cycles].map((cycle) => cycle * tick);
      const value = (key, launching) => launching && key !== 'static' ? 0 : kind.value(s, key, to - ready, to - from, r) || 0;
      const level = (a, b, launching) => ({ from: a, to: b, name: launching ? `launch of ${s.name}` : s.name, values: kind.layers.map((l) => value(l.key, launching)) });
      return [level(from, ready, true), level(ready, to, false)].filter((l) => l.to > l.from);
    });
  };
  let kind = kinds[0];
  const says = told(), keys = element('div', {});
  const figure = picture((place, W) => {
    const L = 72, R = 10, panel = 96, step = panel + 34, H = runs.length * step + 24;
    const x = (t) => L + (W - L - R) * t / all;
    const drawn = runs.map((r) => levels(kind, r));
    const sum = (level) => level.values.reduce((a, b) => a + b, 0);
    const most = kind.most || Math.max(1e-300, ...drawn.flat().map(sum));
    const svg = shape('svg', { viewBox: `0 0 ${W} ${H}`, role: 'group', 'aria-label': `${kind.name} over time` });
    runs.forEach((r, at) => {
      const top = at * step + 24, foot = top + panel;
      svg.append(shape('text', { x: L, y: top - 7 }, fit(r.name, W - L)));
      for (const share of [0, 0.5, 1]) {
        const y = foot - share * panel;
        svg.append(shape('line', { x1: L, x2: W - R, y1: y, y2: y, stroke: 'var(--line)' }),
          shape('text', { x: L - 6, y: y + 4, 'text-anchor': 'end', class: 'faint' }, share ? kind.unit(most * share) : '0'));
      }
      for (const level of drawn[at]) {
        const parts = kind.layers.map((l, i) => `${l.name} ${kind.unit(level.values[i])}`).join(', ');
        const text = `${r.name}, ${level.name}, ${si(level.from, 's')} to ${si(level.to, 's')}: ${kind.name} ${kind.unit(sum(level))}${kind.layers.length > 1 ? ` (${parts})` : ''}`;
        const mark = telling(shape('g', {}), says, text);
        let y = foot;
        level.values.forEach((value, i) => {
          const height = panel * Math.min(1, value / most);
          y -= height;
          if (height > 0.1) mark.append(shape('rect', { x: x(level.from), y, width: Math.max(0.7, x(level.to) - x(level.from)), height, fill: kind.layers[i].fill }));
        });
        svg.append(mark);
      }
    });
    for (let i = 0; i <= 2; i++) svg.append(shape('text', { x: x(all * i / 2), y: H - 4, 'text-anchor': ['start', 'middle', 'end'][i], class: 'faint' }, si(all * i / 2, 's')));
    place.replaceChildren(roving(svg));
    keys.replaceChildren(legend(kind.layers.map((l) => l.name), kind.layers.map((l) => l.fill)));
  });
  const select = choice('shown', kinds.map((k) => k.name), (i) => { kind = kinds[i]; figure.redraw(); });
  started(part('Over time', element('div', { class: 'controls' }, select.node), figure, keys,
    element('p', { class: 'faint' }, 'Means of each section behind its launch; of sections that are launched several times, over all of their time.'), says));
}
