// The grid as a heat map: a mark a unit and a link, coloured by stage, by what it did with its time, or by load.

const CODE = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const SIDES = ['east', 'west', 'south', 'north'];
// What stands at each site of a section, and the loads of the links between sites.
function survey(layout, section) {
  const { columns, rows } = layout, all = columns * rows;
  const sites = Array.from({ length: all }, (_, i) => ({ x: i % columns, y: Math.floor(i / columns), kind: layout.kinds[i], stage: -1, texts: [], banks: 0 }));
  section.stages.forEach((stage, s) => {
    const did = stage.units.flatMap((unit) => Array(unit.pcus).fill(unit));
    stage.pcus.forEach((at, unit) => {
      sites[at].stage = s;
      sites[at].unit = did[unit];
      sites[at].texts.push(`stage ${stage.name}`);
    });
  });
  for (const buffer of section.buffers) for (const [at, banks] of buffer.parts) {
    sites[at].banks += banks;
    if (sites[at].stage < 0) sites[at].stage = buffer.stage;
    sites[at].texts.push(`${buffer.role} ${buffer.tensor} for stage ${section.stages[buffer.stage].name}, ${banks} banks`);
  }
  const width = section.links.length / (4 * all);
  const load = (side, at) => {
    const start = (side * all + at) * width;
    return section.loads[[...section.links.slice(start, start + width)].reduce((sum, digit) => sum * 62 + CODE.indexOf(digit), 0)];
  };
  // Both ways between neighbours stand together.
  const links = [];
  sites.forEach((site, at) => {
    if (site.x + 1 < columns) links.push({ from: site, to: sites[at + 1], there: load(0, at), back: load(1, at + 1) });
    if (site.y + 1 < rows) links.push({ from: site, to: sites[at + columns], there: load(2, at), back: load(3, at + columns) });
  });
  return { sites, links };
}
const MODES = ['stage', 'share of the time working', 'stalled on input', 'stalled on output', 'link load', 'banks taken'];
const SHARES = { 1: 'busy', 2: 'stalled_on_input', 3: 'stalled_on_output' };

function gridOf(layouts, title) {
  const places = layouts.flatMap((layout) => layout.sections.map((section) => ({ layout, section, name: `${layout.mode}, ${section.name}` })));
  if (!places.length) return '';
  // The costliest section first, of the fused run if there is one.
  const isFused = places.some((p) => p.layout.mode === 'fused');
  const cost = (p) => isFused && p.layout.mode !== 'fused' ? -1 : p.section.cycles * (p.section.repeat || 1);
  const costliest = places.reduce((most, p, i) => cost(p) > cost(places[most]) ? i : most, 0);
  let place = places[costliest], by = 0;
  const says = told();
  const key = element('div', {});
  const figure = element('figure', {});
  function draw() {
    const { layout, section } = place, size = 16;
    const { sites, links } = survey(layout, section);
    const share = (load) => load.flits * section.repeat / Math.max(1, section.cycles * layout.links_per_direction);
    const most = Math.max(1e-9, ...links.map((l) => Math.max(share(l.there), share(l.back))));
    const svg = shape('svg', { viewBox: `-2 -2 ${layout.columns * size + 4} ${layout.rows * size + 4}`, role: 'grid',
      'aria-label': `Grid of ${layout.columns} by ${layout.rows} units. Arrow keys move from unit to unit, with Shift to the link between.`,
      style: `max-width:${Math.max(22, layout.columns * 1.5)}rem` });
    const tells = (node, text) => {
      const now = () => tell(says, text);
      node.setAttribute('aria-label', text);
      node.addEventListener('pointerenter', now);
      node.addEventListener('focus', now);
      return node;
    };
    const lines = links.map((link) => {
      const across = link.from.y === link.to.y, busiest = Math.max(share(link.there), share(link.back));
      const names = (load) => load.stages.map((s) => section.stages[s].name).join(', ');
      const way = (side, load) => `${side} ${load.flits ? `${whole(load.flits)} flits (${percent(share(load))} of the time) of ${names(load) || 'no stage'}` : 'nothing'}`;
      const text = `Link between (${link.from.x}, ${link.from.y}) and (${link.to.x}, ${link.to.y}): ${way(across ? 'east' : 'south', link.there)}; `
        + way(across ? 'west' : 'north', link.back);
      const fill = by === 4 ? heat(busiest / most) : busiest > 0 ? 'var(--line)' : 'none';
      const wide = by === 4 ? 4 : 2;
      const box = across ? { x: link.to.x * size - wide / 2, y: link.to.y * size + 3, width: wide, height: size - 6 }
        : { x: link.to.x * size + 3, y: link.to.y * size - wide / 2, width: size - 6, height: wide };
      return tells(shape('rect', { ...box, fill, 'pointer-events': 'all', tabindex: -1, role: 'gridcell', class: 'link',
        'data-link': `${link.from.x},${link.from.y},${across ? 'east' : 'south'}` }), text);
    });
    const cells = sites.map((site, i) => {
      const part = SHARES[by] && site.unit ? site.unit[SHARES[by]] : undefined;
      const paint = by === 0 ? (site.stage < 0 ? 'var(--raise)' : colour(site.stage))
        : by === 5 ? (site.kind === 'M' ? heat(site.banks / layout.banks_per_pmu) : 'var(--raise)')
          : part === undefined ? 'var(--raise)' : heat(part);
      const unit = { C: 'PCU', M: 'PMU' }[site.kind] || 'no unit';
      const did = site.unit ? `; working ${percent(site.unit.busy)} of the time`
        + (site.unit.stalled_on_input === undefined ? ''
          : `, waiting for input ${percent(site.unit.stalled_on_input)}, for output ${percent(site.unit.stalled_on_output)}`) : '';
      const banks = site.banks ? `; ${site.banks} of ${layout.banks_per_pmu} banks` : '';
      const text = `${unit} at (${site.x}, ${site.y}): ${site.texts.join('; ') || 'not used'}${did}${banks}`;
      const inset = site.kind === 'M' ? 2 : 2.5;
      return tells(shape('rect', { x: site.x * size + inset, y: site.y * size + inset, width: size - 2 * inset, height: size - 2 * inset,
        rx: site.kind === 'C' ? 5.5 : 1, fill: paint, stroke: 'var(--line)', 'stroke-width': 0.5, role: 'gridcell', tabindex: i === 0 ? 0 : -1,
        'data-site': `${site.x},${site.y}` }), text);
    });
    svg.append(...lines, ...cells);
    const linkOf = new Map(lines.map((line) => [line.getAttribute('data-link'), line]));
    const go = (from, to) => { from.setAttribute('tabindex', -1); to.setAttribute('tabindex', 0); to.focus(); };
    svg.addEventListener('keydown', (event) => {
      const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
      const now = document.activeElement;
      if (!step || !svg.contains(now)) return;
      const spot = (now.getAttribute('data-site') || now.getAttribute('data-link') || '').split(',');
      let [x, y] = [Number(spot[0]), Number(spot[1])];
      // From a link on: to the unit at the end that the key points to.
      if (spot[2]) { if (step[0] + step[1] > 0) { x += spot[2] === 'east' ? 1 : 0; y += spot[2] === 'south' ? 1 : 0; } } else { x += step[0]; y += step[1]; }
      if (x < 0 || y < 0 || x >= layout.columns || y >= layout.rows) return;
      const link = event.shiftKey && !spot[2] ? linkOf.get(`${Math.min(x, Number(spot[0]))},${Math.min(y, Number(spot[1]))},${step[0] ? 'east' : 'south'}`) : undefined;
      go(now, link || cells[y * layout.columns + x]);
      event.preventDefault();
    });
    figure.replaceChildren(svg);
    if (by === 0) key.replaceChildren(legend(section.stages.map((s) => s.name)));
    else {
      const full = by === 4 ? most : 1;
      key.replaceChildren(legend([0, 0.25, 0.5, 0.75, 1].map((s) => s === 0 ? '0' : percent(s * full)), [0, 0.25, 0.5, 0.75, 1].map(heat)));
    }
  }
  const section = choice('section', places.map((p) => p.name), (i) => { place = places[i]; draw(); });
  section.select.value = costliest;
  const mode = choice('colour', MODES, (i) => { by = i; draw(); });
  draw();
  return element('div', {}, title ? element('h3', {}, title) : '', element('div', { class: 'controls' }, section.node, mode.node), figure, key, says);
}
function grid() {
  const left = data.sections_left_out;
  part('The grid', element('div', { class: 'pair' }, data.results.map((_, at) =>
    gridOf(data.layouts.filter((layout) => layout.result === at), several ? titles[at] : ''))),
  element('p', { class: 'faint' }, 'Round: PCU. Square: PMU. Bars between them: links, both ways together. Shares are of the section’s time, launch included; '
    + 'flits to three digits, exact ones are in ', element('code', {}, 'rdusim map'), '.'),
  left ? element('p', {}, coded(`${left} shorter sections are left out to keep the page small; \`rdusim map\` shows them.`)) : '');
}
