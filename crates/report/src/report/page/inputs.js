// What differs between two results, and what a reader needs to make them again.

// Lines of two texts that only one of them has: the longest common part is found row by row.
function lineChanges(a, b) {
  const [p, q] = [a.split('\n'), b.split('\n')];
  let start = 0;
  while (start < p.length && start < q.length && p[start] === q[start]) start++;
  let ends = 0;
  while (ends < p.length - start && ends < q.length - start && p[p.length - 1 - ends] === q[q.length - 1 - ends]) ends++;
  const [s, t] = [p.slice(start, p.length - ends), q.slice(start, q.length - ends)];
  if (s.length * t.length > 4e6) return s.map((line) => ['−', line]).concat(t.map((line) => ['+', line]));
  const best = Array.from({ length: s.length + 1 }, () => new Uint32Array(t.length + 1));
  for (let i = s.length - 1; i >= 0; i--) for (let j = t.length - 1; j >= 0; j--) {
    best[i][j] = s[i] === t[j] ? best[i + 1][j + 1] + 1 : Math.max(best[i + 1][j], best[i][j + 1]);
  }
  const changes = [];
  for (let i = 0, j = 0; i < s.length || j < t.length;) {
    if (i < s.length && j < t.length && s[i] === t[j]) { i++; j++; }
    else if (j >= t.length || (i < s.length && best[i + 1][j] >= best[i][j + 1])) changes.push(['−', s[i++]]);
    else changes.push(['+', t[j++]]);
  }
  return changes.filter(([, line]) => line.trim() && !line.trim().startsWith('#'));
}
function differences() {
  if (!several) return;
  const [first, ...others] = data.results.map((result, at) => ({ ...result, title: titles[at] }));
  const text = (v) => v === undefined ? '–' : v !== null && typeof v === 'object' ? JSON.stringify(v) : typeof v === 'number' ? v.toLocaleString('en-US') : String(v);
  const nodes = [];
  for (const other of others) {
    const rows = ['arch', 'workload'].flatMap((part) => {
      const [a, b] = [first.document[part], other.document[part]];
      const keys = [...new Set([...Object.keys(a), ...Object.keys(b)])];
      return keys.filter((k) => text(a[k]) !== text(b[k])).map((k) => [`${part}.${k}`, text(a[k]), element('td', { class: 'differs' }, element('strong', {}, text(b[k])))]);
    });
    if (rows.length) nodes.push(table(['', first.title, other.title], rows, [0]));
    if (first.made && other.made) {
      if (first.made.generator !== other.made.generator) nodes.push(element('p', {}, `${first.made.generator} against ${other.made.generator}`));
      other.made.inputs.forEach((input, i) => {
        const before = first.made.inputs[i];
        const changes = before ? lineChanges(before.text, input.text) : [];
        if (changes.length) nodes.push(element('details', { open: changes.length <= 12 ? '' : undefined },
          element('summary', {}, `${changes.length} lines differ between ${before.name} and ${input.name}`),
          element('pre', { tabindex: 0 }, changes.map(([sign, line]) => element('span', { class: sign === '+' ? 'added' : 'removed' }, `${sign} ${line}\n`)))));
      });
      if (first.made.command !== other.made.command) nodes.push(element('pre', { tabindex: 0 }, [
        element('span', { class: 'removed' }, `− ${first.made.command}\n`), element('span', { class: 'added' }, `+ ${other.made.command}\n`)]));
    }
  }
  if (!nodes.length) nodes.push(element('p', {}, 'Chip and workload are the same.'));
  part('What differs', nodes);
}

function inputs() {
  const of = (made, title) => [title ? element('h3', {}, title) : '',
    made.command ? element('pre', { tabindex: 0 }, made.command) : '',
    made.inputs.map((input) => element('details', {}, element('summary', {}, input.name), element('pre', { tabindex: 0 }, input.text))),
    element('p', { class: 'faint' }, `made by ${made.generator}`)];
  const saved = data.results.map((result, at) => ({ made: result.made, title: several ? titles[at] : '' }))
    .concat(sheets.map((sheet) => ({ made: sheet.made, title: manySheets ? sheet.name : '' }))).filter((result) => result.made);
  part('To repeat this', saved.map((result) => of(result.made, result.title)), of(data.made, saved.length ? 'This page' : ''));
}
