// Points of a sweep: two chosen columns against each other, with the points that no other beats.

function points() {
  const { columns, rows, metrics } = data.points;
  const numeric = columns.map((_, c) => rows.every((row) => typeof row[c] === 'number'));
  const usable = columns.map((_, c) => c).filter((c) => numeric[c]);
  if (usable.length < 2) return;
  let xAt = usable[0], yAt = columns.indexOf(metrics[0]) >= 0 ? columns.indexOf(metrics[0]) : usable[1], tintAt = usable[Math.min(1, usable.length - 1)];
  const W = 720, H = 400, L = 90, R = 20, T = 20, B = 50;
  const says = told();
  const figure = element('figure', {});
  function scale(values, low, high) {
    const [min, max] = [Math.min(...values), Math.max(...values)];
    const log = min > 0 && max / min >= 20;
    const f = log ? Math.log : (v) => v;
    const span = f(max) - f(min) || 1;
    const inverse = log ? Math.exp : (v) => v;
    return { at: (v) => low + (high - low) * (f(v) - f(min)) / span, ticks: [0, 0.25, 0.5, 0.75, 1].map((s) => inverse(f(min) + s * span)) };
  }
  function draw() {
    const value = (row, c) => row[c];
    const x = scale(rows.map((r) => value(r, xAt)), L + 10, W - R - 10), y = scale(rows.map((r) => value(r, yAt)), H - B - 10, T + 10);
    const tint = scale(rows.map((r) => value(r, tintAt)), 0, 1);
    const svg = shape('svg', { viewBox: `0 0 ${W} ${H}`, role: 'group', 'aria-label': `${columns[yAt]} over ${columns[xAt]}` });
    for (const t of x.ticks) svg.append(shape('line', { class: 'grid', x1: x.at(t), x2: x.at(t), y1: T, y2: H - B }),
      shape('text', { x: x.at(t), y: H - B + 18, 'text-anchor': 'middle', class: 'faint' }, si(t, '').trim()));
    for (const t of y.ticks) svg.append(shape('line', { class: 'grid', x1: L, x2: W - R, y1: y.at(t), y2: y.at(t) }),
      shape('text', { x: L - 8, y: y.at(t) + 4, 'text-anchor': 'end', class: 'faint' }, si(t, '').trim()));
    svg.append(shape('text', { x: (L + W) / 2, y: H - 8, 'text-anchor': 'middle' }, columns[xAt]),
      shape('text', { x: 14, y: H / 2, 'text-anchor': 'middle', transform: `rotate(-90 14 ${H / 2})` }, columns[yAt]));
    // Lower is better on both axes.
    const best = rows.filter((p) => !rows.some((q) => q[xAt] <= p[xAt] && q[yAt] <= p[yAt] && (q[xAt] < p[xAt] || q[yAt] < p[yAt])))
      .sort((a, b) => a[xAt] - b[xAt]);
    if (best.length > 1) svg.append(shape('path', { d: best.map((p, i) => `${i ? 'L' : 'M'}${x.at(p[xAt])},${y.at(p[yAt])}`).join(' '),
      fill: 'none', stroke: 'var(--ink)', 'stroke-dasharray': '5 4' }));
    for (const row of rows) {
      svg.append(telling(shape('circle', { cx: x.at(row[xAt]), cy: y.at(row[yAt]), r: best.includes(row) ? 7 : 4.5, fill: heat(tint.at(row[tintAt])),
        stroke: best.includes(row) ? 'var(--ink)' : 'var(--line)' }), says, columns.map((name, c) => `${name} ${row[c]}`).join(', ')));
    }
    figure.replaceChildren(svg);
  }
  const pick = (label, chosen, set) => {
    const c = choice(label, usable.map((u) => columns[u]), (i) => { set(usable[i]); draw(); });
    c.select.value = usable.indexOf(chosen);
    return c.node;
  };
  draw();
  part('Points', element('div', { class: 'controls' }, pick('across', xAt, (c) => { xAt = c; }), pick('up', yAt, (c) => { yAt = c; }),
    pick('colour', tintAt, (c) => { tintAt = c; })), figure,
  element('p', { class: 'faint' }, 'Large marks on the dashed line are the points that no other beats on both axes (lower is better). Dark to light: low to high.'), says);
}
