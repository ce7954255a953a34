// The grid as a heat map: a square a unit, coloured by stage, by share of the time it works, or by the flits over its links.

// Dark to light, even in lightness and readable without red and green (after cividis, Nuñez et al. 2018).
const HEAT = [[0, 34, 78], [47, 63, 107], [89, 92, 109], [124, 123, 120], [163, 155, 112], [205, 190, 91], [254, 232, 56]];
function heat(share) {
  const at = Math.min(1, Math.max(0, share)) * (HEAT.length - 1), i = Math.min(HEAT.length - 2, Math.floor(at));
  const mix = HEAT[i].map((low, c) => Math.round(low + (HEAT[i + 1][c] - low) * (at - i)));
  return `rgb(${mix.join(' ')})`;
}

function grid() {
  const places = data.layouts.flatMap((layout) => layout.sections.map((section, at) => ({ layout, section, at,
    name: `${data.results.length > 1 ? `${data.results[layout.result].title}: ` : ''}${layout.mode}, ${section.name}` })));
  let place = places[places.length - 1], by = 0;
  const says = told();
  const figure = element('figure', {});
  const key = element('div', {});
  const MODES = ['stage', 'share of the time working', 'stalled on input', 'stalled on output', 'link load', 'banks taken'];

  // What stands at a site: its kind, colour and text.
  function sites() {
    const { layout, section } = place;
    const { columns, rows } = layout;
    const list = Array.from({ length: columns * rows }, (_, i) => ({
      x: i % columns, y: Math.floor(i / columns), kind: layout.kinds[i], stage: -1, texts: [], banks: 0,
    }));
    section.stages.forEach((stage, s) => stage.pcus.forEach(([x, y], unit) => {
      const site = list[y * columns + x];
      site.stage = s;
      site.unit = stage.units ? stage.units[unit] : undefined;
      site.texts.push(`stage ${stage.name}`);
    }));
    for (const buffer of section.buffers) for (const [x, y, banks] of buffer.parts) {
      const site = list[y * columns + x];
      site.banks += banks;
      if (site.stage < 0) site.stage = buffer.stage;
      site.texts.push(`${buffer.role} ${buffer.tensor}, ${banks} banks`);
    }
    list.forEach((site, i) => { site.flits = ['east', 'west', 'south', 'north'].map((d) => section.links[d][i] || 0); });
    return list;
  }
  const shares = { 1: 'busy', 2: 'stalled_on_input', 3: 'stalled_on_output' };
  function draw() {
    const { layout, section } = place;
    const size = 14, list = sites();
    const most = Math.max(1, ...list.map((s) => s.flits.reduce((a, b) => a + b, 0)));
    const svg = shape('svg', { viewBox: `-2 -2 ${layout.columns * size + 4} ${layout.rows * size + 4}`, role: 'grid',
      'aria-label': `Grid of ${layout.columns} by ${layout.rows} units. Arrow keys move from unit to unit.`,
      style: `max-width:${Math.max(22, layout.columns * 1.35)}rem` });
    const cells = list.map((site, i) => {
      const flits = site.flits.reduce((a, b) => a + b, 0);
      const share = shares[by] && site.unit ? site.unit[shares[by]] : undefined;
      const paint = by === 0 ? (site.stage < 0 ? 'var(--raise)' : colour(site.stage))
        : by === 4 ? heat(flits / most)
          : by === 5 ? (site.kind === 'M' ? heat(site.banks / layout.banks_per_pmu) : 'var(--raise)')
            : share === undefined ? 'var(--raise)' : heat(share);
      const unit = { C: 'PCU', M: 'PMU' }[site.kind] || 'no unit';
      const working = site.unit ? `; working ${percent(site.unit.busy)} of the time`
        + (site.unit.stalled_on_input === undefined ? ''
          : `, waiting for input ${percent(site.unit.stalled_on_input)}, for output ${percent(site.unit.stalled_on_output)}`) : '';
      const text = `${unit} at (${site.x}, ${site.y}): ${site.texts.join('; ') || 'not used'}${working}; `
        + `flits out: east ${whole(site.flits[0])}, west ${whole(site.flits[1])}, south ${whole(site.flits[2])}, north ${whole(site.flits[3])}`;
      const inset = site.kind === 'M' ? 0.5 : 1;
      const cell = shape('rect', { x: site.x * size + inset, y: site.y * size + inset, width: size - 2 * inset, height: size - 2 * inset,
        rx: site.kind === 'C' ? 5 : 0, fill: paint, stroke: 'var(--line)', role: 'gridcell', tabindex: i === 0 ? 0 : -1, 'aria-label': text,
        'data-site': `${site.x},${site.y}` });
      cell.addEventListener('pointerenter', () => { says.textContent = text; });
      cell.addEventListener('focus', () => { says.textContent = text; });
      return cell;
    });
    svg.append(...cells);
    svg.addEventListener('keydown', (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -layout.columns, ArrowDown: layout.columns }[event.key];
      const at = cells.indexOf(document.activeElement);
      const next = cells[at + step];
      if (step === undefined || at < 0 || !next) return;
      if (Math.abs(step) === 1 && Math.floor(at / layout.columns) !== Math.floor((at + step) / layout.columns)) return;
      cells[at].setAttribute('tabindex', -1);
      next.setAttribute('tabindex', 0);
      next.focus();
      event.preventDefault();
    });
    figure.replaceChildren(svg);
    if (by === 0) key.replaceChildren(legend(section.stages.map((s) => s.name)));
    else key.replaceChildren(legend(['0', '25 %', '50 %', '75 %', by === 4 ? `${whole(most)} flits` : '100 %'], [0, 0.25, 0.5, 0.75, 1].map(heat)));
  }
  const section = choice('section', places.map((p) => p.name), (i) => { place = places[i]; draw(); });
  section.select.value = places.length - 1;
  const mode = choice('colour', MODES, (i) => { by = i; draw(); });
  draw();
  part('The grid', element('div', { class: 'controls' }, section.node, mode.node), figure, key,
    element('p', { class: 'faint' }, 'Round: PCU. Square: PMU.'), says);
}
