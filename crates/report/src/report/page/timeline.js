// Sections over time; drag, wheel, arrow keys and buttons move and zoom.

const BOUNDS = ['compute', 'imbalance', 'memory', 'ag', 'link', 'pmu_port', 'launch', 'fill'];
function timeline() {
  const all = Math.max(...runs.map((r) => r.run.time_s));
  if (!(all > 0)) return;
  // It opens on the fused run, beside which others run longer.
  const fused = Math.max(...runs.map((r) => r.run.mode === 'fused' ? r.run.time_s : 0));
  let [from, to] = [0, fused || all];
  const says = told();
  let svg;
  const figure = picture((place, W) => {
    const narrow = W < 560, L = narrow ? 4 : 130, row = narrow ? 60 : 44, top = narrow ? 22 : 6, H = runs.length * row + 34;
    const x = (t) => L + (W - L - 10) * (t - from) / (to - from);
    const clip = (t) => Math.min(W - 10, Math.max(L, x(t)));
    const held = svg && svg === document.activeElement;
    svg = shape('svg', { viewBox: `0 0 ${W} ${H}`, tabindex: 0, role: 'group',
      'aria-label': 'Timeline of sections. Arrow keys move, plus and minus zoom, 0 shows all.' });
    runs.forEach((r, at) => {
      const y = at * row + top, tick = r.run.time_s / r.run.cycles;
      let start = 0;
      svg.append(narrow ? shape('text', { x: L, y: y - 6 }, fit(r.name, W - L)) : shape('text', { x: L - 8, y: y + 20, 'text-anchor': 'end' }, fit(r.name, L - 12)));
      for (const s of r.run.sections) {
        const end = start + s.cycles, ready = start + s.launch_cycles;
        if (end * tick > from && start * tick < to) {
          const [a, b, c] = [clip(start * tick), clip(end * tick), clip(ready * tick)];
          const text = `${r.name}, ${s.name}: ${si((end - start) * tick, 's')} from ${si(start * tick, 's')} on, cycles ${whole(start)} to ${whole(end)}, `
            + `of these ${whole(s.launch_cycles)} launch; bound by ${s.bound_by}; ${r.document.arch.kind === 'gpu' ? `${s.pcus} SMs` : `${s.pcus} PCUs, ${s.pmus} PMUs`}, ${bytes(offChip(s.traffic))} off chip`;
          svg.append(telling(shape('rect', { x: a, y, width: Math.max(0.7, b - a), height: 30, fill: boundColour(s.bound_by), stroke: 'var(--paper)' }), says, text));
          if (c > a) svg.append(shape('rect', { x: a, y: y + 24, width: c - a, height: 6, fill: 'var(--ink)', 'pointer-events': 'none' }));
          if (b - a > 44) svg.append(shape('text', { x: a + 4, y: y + 18, 'pointer-events': 'none', class: 'on' }, fit(s.name, b - a - 8)));
        }
        start = end;
      }
    });
    for (let i = 0; i <= 2; i++) {
      const t = from + (to - from) * i / 2;
      svg.append(shape('text', { x: Math.min(x(t), W - 10), y: H - 6, 'text-anchor': ['start', 'middle', 'end'][i], class: 'faint' }, si(t, 's')));
    }
    svg.setAttribute('data-from', from);
    svg.setAttribute('data-to', to);
    listen(W, L);
    place.replaceChildren(roving(svg));
    if (held) svg.focus();
  });
  function view(start, length) {
    const span = Math.min(all, Math.max(all / 1e5, length));
    from = Math.min(Math.max(0, start), all - span);
    to = from + span;
    figure.redraw();
  }
  const zoom = (factor, at = 0.5) => view(from + (to - from) * at * (1 - factor), (to - from) * factor);
  const move = (share) => view(from + (to - from) * share, to - from);
  let grip;
  function listen(W, L) {
    svg.addEventListener('keydown', (event) => {
      const act = { ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2), '+': () => zoom(0.5), '=': () => zoom(0.5),
        '-': () => zoom(2), 0: () => view(0, all) }[event.key];
      if (act && event.target === svg) { act(); event.preventDefault(); }
    });
    // The wheel alone scrolls the page; with Ctrl it zooms, as in maps.
    svg.addEventListener('wheel', (event) => {
      if (!event.ctrlKey && !event.shiftKey) return;
      const box = svg.getBoundingClientRect();
      const at = ((event.clientX - box.left) / box.width * W - L) / (W - L - 10);
      zoom(event.deltaY > 0 ? 1.25 : 0.8, Math.min(1, Math.max(0, at)));
      event.preventDefault();
    }, { passive: false });
    svg.addEventListener('pointerdown', (event) => { grip = { x: event.clientX, from, width: svg.getBoundingClientRect().width * (W - L - 10) / W }; });
  }
  window.addEventListener('pointerup', () => { grip = undefined; });
  window.addEventListener('pointermove', (event) => {
    if (grip) view(grip.from - (event.clientX - grip.x) / grip.width * (to - from), to - from);
  });
  const button = (name, act) => { const b = element('button', { type: 'button' }, name); b.addEventListener('click', act); return b; };
  const used = BOUNDS.filter((b) => runs.some((r) => r.run.sections.some((s) => s.bound_by.split(':')[0] === b)));
  started(part('Sections over time', element('div', { class: 'controls' }, button('zoom in', () => zoom(0.5)), button('zoom out', () => zoom(2)),
    button('earlier', () => move(-0.2)), button('later', () => move(0.2)), button('all', () => view(0, all))),
  figure, legend(used.map((b) => `bound by ${b}`), used.map(boundColour)),
  element('p', { class: 'faint' }, (fused && fused < all ? 'Opens on the time of the fused run; “all” shows every run to its end. ' : '') + 'The foot of a bar is its launch. Drag to move; Ctrl and the wheel, or + and −, to zoom.'), says));
}
