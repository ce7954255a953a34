// The page of two results.
check('the headline compares them', /is (faster|slower) than/.test(document.querySelector('.first').textContent));
const figures = named('Figures');
check('changes are marked', figures.querySelectorAll('td.change.better').length > 3 && figures.querySelectorAll('td.same').length > 0);
check('by a sign and a word too', [...figures.querySelectorAll('td.change')].every((cell) => /^[▲▼] .*(better|worse|more|less)$/.test(cell.textContent)));
const differs = named('What differs').textContent;
check('fields that differ are listed', differs.includes('arch.off_chip_gb_per_s'));
check('commands that differ are shown', differs.includes('--set'));
check('sections that differ are marked', named('Sections').querySelectorAll('td.differs').length > 0);
check('grids stand side by side', named('The grid').querySelectorAll('svg').length === 2);
check('each has its inputs', named('To repeat this').querySelectorAll('details').length === 4);
done();
