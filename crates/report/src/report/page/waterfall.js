// A time taken apart: from one total to another, a bar a cause.

function waterfall(fall, name) {
  const first = fall.steps[0].start_s, last = fall.steps[fall.steps.length - 1].end_s;
  const most = Math.max(first, ...fall.steps.map((s) => s.end_s));
  const rows = [{ label: fall.from, low: 0, high: first, fill: 'var(--c7)', text: si(first, 's'), told: `${fall.from}: ${si(first, 's')}` },
    ...fall.steps.map((s) => {
      const saved = s.start_s - s.end_s;
      const factor = s.end_s > 0 && s.start_s > 0 ? `${digits(saved >= 0 ? s.start_s / s.end_s : s.end_s / s.start_s)}× ${saved >= 0 ? 'faster' : 'slower'}` : '';
      const text = `${saved >= 0 ? '−' : '+'}${si(Math.abs(saved), 's')}`;
      return { label: s.label, low: Math.min(s.start_s, s.end_s), high: Math.max(s.start_s, s.end_s), fill: saved >= 0 ? 'var(--c0)' : 'var(--c1)',
        text, told: `${s.label}: ${text}, from ${si(s.start_s, 's')} to ${si(s.end_s, 's')}${factor ? `, ${factor}` : ''}. ${s.note || ''}` };
    }),
    { label: fall.to, low: 0, high: last, fill: 'var(--c7)', text: si(last, 's'), told: `${fall.to}: ${si(last, 's')}` }];
  const says = told();
  const figure = picture((place, W) => {
    const narrow = W < 560, L = narrow ? 4 : 210, R = 90, step = narrow ? 48 : 34;
    const x = (v) => L + (W - L - R) * v / most;
    const svg = shape('svg', { viewBox: `0 0 ${W} ${rows.length * step + 10}`, role: 'group', 'aria-label': fall.title });
    rows.forEach((row, at) => {
      const y = at * step + (narrow ? 22 : 6);
      svg.append(narrow ? shape('text', { x: L, y: y - 5 }, fit(row.label, W - L)) : shape('text', { x: L - 8, y: y + 16, 'text-anchor': 'end' }, fit(row.label, L - 12)));
      svg.append(telling(shape('rect', { x: x(row.low), y, width: Math.max(1.5, x(row.high) - x(row.low)), height: 22, fill: row.fill }), says, row.told));
      svg.append(shape('text', { x: x(row.high) + 6, y: y + 16 }, row.text));
      // Where the next bar starts.
      const step_at = at < fall.steps.length ? fall.steps[at].start_s : last;
      if (at + 1 < rows.length) svg.append(shape('line', { class: 'axis', x1: x(step_at), x2: x(step_at), y1: y + 22, y2: y + step }));
    });
    place.replaceChildren(roving(svg));
  });
  const how = first > 0 && last > 0 ? `${digits(first / last)}× in all: the savings add up, the factors multiply. ` : '';
  const lines = fall.steps.map((s) => [s.label, si(s.start_s, 's'), si(s.end_s, 's'),
    s.end_s > 0 ? `${digits(s.start_s / s.end_s)}×` : '', element('td', { class: 'wrap' }, coded(s.note || ''))]);
  started(part(name ? `${fall.title}: ${name}` : fall.title, figure, element('p', { class: 'faint' }, `${how}Blue saves time, orange costs it.`), says,
    element('details', {}, element('summary', {}, 'as a table'), table(['step', 'before', 'after', 'factor', ''], lines, [0, 4]))));
}
function waterfalls() {
  for (const fall of data.waterfalls) waterfall(fall);
  data.results.forEach((result, at) => { if (result.document.waterfall) waterfall(result.document.waterfall, several ? titles[at] : ''); });
}
