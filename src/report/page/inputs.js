// What a reader needs to repeat the run.

function inputs() {
  const files = data.inputs.map((input) => element('details', {}, element('summary', {}, input.name), element('pre', { tabindex: 0 }, input.text)));
  part('To repeat this', data.command ? element('pre', { tabindex: 0 }, data.command) : '', files,
    element('p', { class: 'faint' }, `made by ${data.generator}`));
}
