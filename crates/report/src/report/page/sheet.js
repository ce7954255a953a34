// Results that are no runs of a workload: the verdict, the figures that decide, bars, tables, pictures and remarks.

const IN_UNIT = { B: bytes, '%': percent, '': (v) => Number.isInteger(v) ? whole(v) : digits(v) };
const inUnit = (unit) => IN_UNIT[unit] || ((v) => unit.length > 1 ? `${si(v, '')} ${unit}` : si(v, unit));
const sheets = data.sheets.map(({ name, sheet, made }, at) => ({ ...sheet, made,
  name: data.sheets.some((other, o) => o < at && other.name === name) ? `${name} (${at + 1})` : name }));
const manySheets = sheets.length > 1;
// What compares with measurements or numbers says itself how near it is; a mask is counted.
const MEASURED = ['validation', 'verify', 'mask'];
// A heading of one of several results says whose it is.
const heading = (of, title) => manySheets ? `${title}: ${of.name}` : title;
// Of a result of the same kind, the first one.
const firstAlike = (of) => sheets.find((other) => other.kind === of.kind);

function sheetCards() {
  body.append(element('div', { class: 'pair' }, sheets.map((of, at) => {
    const first = firstAlike(of), main = of.figures.find((f) => f.less !== null);
    const before = first !== of && main ? first.figures.find((f) => f.name === main.name) : undefined;
    const against = before && before.value > 0 && main.value > 0 ? element('p', {},
      `${main.name} ${inUnit(main.unit)(main.value)}, ${inUnit(main.unit)(before.value)} in ${first.name}: ${digits(Math.max(main.value / before.value, before.value / main.value))}× `
        + (main.value === before.value ? 'the same' : (main.value < before.value) === main.less ? 'better' : 'worse')) : '';
    return element('div', {}, element('h1', {}, manySheets ? `${of.name}: ${of.title}` : of.title),
      element('div', { class: 'first' }, element('strong', {}, of.headline), element('span', {}, coded(of.verdict))), against,
      of.lines.concat(at || runs.length || MEASURED.includes(of.kind) ? [] : [data.accuracy]).map((line) => element('p', { class: 'faint' }, coded(line))));
  })));
}

function sheetFigures() {
  for (const kind of new Set(sheets.map((of) => of.kind))) {
    const alike = sheets.filter((of) => of.kind === kind && of.figures.length);
    if (!alike.length) continue;
    const names = [...new Set(alike.flatMap((of) => of.figures.map((f) => f.name)))];
    const head = ['', ...alike.flatMap((of, at) => at ? [of.name, `against ${alike[0].name}`] : [alike.length > 1 ? of.name : ''])];
    const rows = names.map((name) => {
      const of = alike.map((sheet) => sheet.figures.find((f) => f.name === name));
      const text = (f) => f && f.value !== null ? inUnit(f.unit)(f.value) : '–';
      return [name, ...of.flatMap((f, at) => !at ? [text(f)] : [text(f),
        f && of[0] && f.value !== null && of[0].value !== null ? change(of[0].value, f.value, f.less ?? undefined) : element('td', { class: 'same' }, '–')])];
    });
    part(runs.length || alike.length < sheets.length ? `Figures: ${kind}` : 'Figures', table(head, rows, [0]));
  }
}

const PICTURES = { timeline: 'Schedule', throughput: 'Throughput against speed for a user', token: 'Where a token’s time goes',
  memory: 'Memory over time', requests: 'Requests over time', latency: 'Distribution of latencies',
  mask: 'What the mask keeps' };
// Pictures of a map: of a section by its number, or of a step on tiles by its name.
function mapped(name) {
  const [, section, rest] = name.match(/^map-(?:(\d+)-)?(.*)$/) || [];
  if (section) return rest.endsWith('.run') ? `How the units of section ${section} spent the run` : `Section ${section} on the grid`;
  return rest && `The tiles in ${rest.replace(/-/g, ' ')}`;
}
// An image runs no script and loads nothing, whatever is in the file.
const image = (picture, title) => element('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': title },
  element('img', { class: 'picture', alt: title, src: `data:image/svg+xml,${encodeURIComponent(picture.svg)}` }));

function sheetParts(of) {
  // Bars of one heading, each on a scale of its own.
  const groups = new Map();
  for (const drawn of of.bars) {
    const [group, name] = drawn.title.split(/: (.*)/);
    groups.set(group, (groups.get(group) || []).concat([{ ...drawn, name }]));
  }
  for (const [group, list] of groups) {
    const says = told();
    const nodes = list.flatMap(({ name, unit, pieces, rows }) => {
      const text = inUnit(unit);
      const lines = rows.map((row) => ({ name: row.name, pieces: row.values.map((value, i) =>
        ({ name: pieces[i], value: Math.max(0, value), fill: colour(i), text: text(value) })).filter((piece) => piece.value > 0) }));
      return [name ? element('h3', {}, name) : '', bars(name || group, lines, says, text), pieces.length > 1 ? legend(pieces) : ''];
    });
    started(part(heading(of, group), nodes, says));
  }
  for (const { title, head, rows, texts } of of.tables) if (rows.length) part(heading(of, title), table(head, rows, texts));
  for (const picture of of.pictures) {
    const title = PICTURES[picture.name] || mapped(picture.name) || picture.name.replace(/-/g, ' ');
    part(heading(of, title), image(picture, title));
  }
  if (of.remarks.length) part(heading(of, 'Remarks'), element('ul', {}, of.remarks.map((line) => element('li', {}, coded(line)))));
}
