
// Fills in the page from the report.
(() => {
  'use strict';
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const $ = (id) => document.getElementById(id);
  const report = read('report'), causes = Object.fromEntries(read('causes'));
  const { profile, forecast } = report, { setup, consumer, data, ring } = profile;
  const STAGES = ['list', 'read', 'header', 'decode', 'upload', 'device_decode', 'transform', 'kernel', 'hand_over'];

  // The top.
  const where = [data.source, setup.device, setup.world > 1 ? `rank ${setup.rank} of ${setup.world}` : ''];
  $('of').textContent = where.filter((it) => it).map((it) => ` · ${it}`).join('');
  const money = (value) => (value === 0 ? '0' : value >= 1 ? value.toFixed(2) : value.toPrecision(2));
  const numbers = [
    [rate(report.images_per_second), 'images/s'],
    [percent(report.consumer_waits), 'of the time the consumer waits', report.cause === 'consumer' ? null : 'bad'],
    [percent(consumer.readiness), 'of the batches were ready when requested'],
    [percent(report.model_quality), 'of the measured images/s is predicted by the model', Math.abs(report.model_quality - 1) > 0.2 ? 'bad' : null],
  ];
  if (report.cost) {
    const { price_per_hour, epoch_seconds, waiting_per_epoch } = report.cost;
    numbers.push([money(waiting_per_epoch), `per epoch of ${time(epoch_seconds)} is the cost of waiting, at ${price_per_hour} an hour`]);
  }
  $('numbers').append(...numbers.map(([value, text, kind]) => make('li', {}, make('b', { class: kind }, value), make('span', {}, text))));

  // What to change.
  const copy = (text, button) => {
    const area = make('textarea', { readonly: '' });
    area.value = text;
    button.after(area);
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    button.focus();
    button.textContent = done ? 'Copied' : 'Not copied';
    setTimeout(() => { button.textContent = 'Copy'; }, 1500);
  };
  const most = Math.max(...report.knobs.map((it) => it.gain), 1e-9);
  report.knobs.forEach((knob) => {
    const copies = make('button', { type: 'button', 'aria-label': `Copy ${knob.setting}` }, 'Copy');
    copies.onclick = () => copy(knob.setting, copies);
    const gain = signed(knob.gain);
    $('knobs').append(make('div', { class: 'knob' },
      make('div', { class: 'set' }, make('code', {}, knob.setting), copies),
      make('div', { class: 'row' }, bar([['', knob.gain / most]], gain), make('b', {}, `${gain}, ${rate(knob.images_per_second)}/s`)),
      make('p', { class: 'note' }, `Costs: ${knob.cost}. Then ${causes[knob.then]}.`)));
  });
  if (report.knobs.length === 0) {
    const nothing = report.nothing ?? (report.cause === 'consumer'
      ? 'no change needed: the loader is faster than the consumer' : 'no setting helps: it needs a faster machine');
    $('knobs').append(make('p', {}, `${nothing[0].toUpperCase()}${nothing.slice(1)}.`));
  }

  // What happened.
  $('waited').textContent = `The consumer waited ${time(consumer.waited)} and worked ${time(consumer.stepped)}; its longest wait took `
    + `${time(consumer.wait.max)}, a step ${time(consumer.step.mean)} (p99 ${time(consumer.step.p99)}).`;
  timeline(profile, STAGES, $('timeline'), $('readout'));

  // Breakdown of the workers' time: stages exclude waiting for a processor, which is a part of its own.
  const spent = report.spent, waits = spent?.processor;
  if (spent) {
    const parts = spent.stages.map(([stage, part]) => [title(stage), part, '', { background: `var(--${stage})` }]);
    if (waits) parts.push(['waiting for a processor', waits.all, '', { background: 'var(--processor)' }]);
    parts.push(['between the stages', spent.between, '', { background: 'var(--quiet)' }],
      ['waiting for input', spent.input, 'input'], ['waiting for room', spent.room, 'room'],
      ['before they began', spent.starting, 'input'], ['after the last sample', spent.finished, 'input']);
    const some = parts.filter(([, part]) => part >= 0.0005), words = some.map(([name, part]) => `${name} ${percent(part)}`).join(', ');
    $('spent').append(bar(some.map(([, part, name, style]) => [name, part, style]), words));
    const who = waits ? [['other programs', waits.others], ['the CPU quota', waits.quota], ['the hypervisor', waits.stolen],
      ['each other', waits.own]].filter(([, part]) => part >= 0.0005) : [];
    $('spent-note').textContent = `The workers' time: ${words}.`
      + (who.length > 0 ? ` They waited for a processor for ${who.map(([name, part]) => `${name} ${percent(part)}`).join(', ')}.` : '')
      + (waits ? '' : ' Their wait for a processor is not known; it is included in the stages.');
  }

  const of_workers = Object.fromEntries(spent?.stages ?? []);
  const share = (it) => of_workers[it.stage] ?? it.busy / Math.max(setup.workers * profile.seconds, 1e-9);
  const waited = (it) => (typeof it.waited_for_processor === 'number' ? time(it.waited_for_processor) : '');
  table($('stages'), [['stage'], ['count'], ['mean'], ['p50'], ['p99'], ['longest'], ["of the workers' time", true], ['on a processor'],
    ['waits for a processor'], ['waits for input'], ['waits for room']], profile.stages.map((it) => [
    [make('i', { class: 'swatch', style: { background: `var(--${it.stage})` } }), title(it.stage)],
    count(it.count), ...['mean', 'p50', 'p99', 'max'].map((key) => (it.count > 0 ? time(it.latency[key]) : '')),
    make('div', { class: 'pair' }, bar([['', share(it), { background: `var(--${it.stage})` }]], percent(share(it))),
      make('span', {}, percent(share(it)))),
    percent(it.cpu_share), waited(it), time(it.waited_for_input), time(it.waited_for_room)]));

  table($('threads'), [['thread'], ['items'], ['time', true], ['busy'], ['waits for input'], ['waits for room'], ['waits for a processor']], profile.threads.map((it) => {
    const parts = [['busy', it.busy], ['input', it.waited_for_input], ['room', it.waited_for_room]];
    const shares = parts.map(([name, seconds]) => [name, seconds / Math.max(profile.seconds, 1e-9)]);
    return [it.name, count(it.count), bar(shares, `busy ${percent(shares[0][1])}`), ...shares.map(([, part]) => percent(part)), waited(it)];
  }));

  $('many').textContent = `${profile.threads.length} threads`;
  $('every').open = profile.threads.length <= 16;

  $('ring-note').textContent = `Share of the time by number of ready slots, of ${ring.slots}; dashed: predicted by the model. With none ready `
    + `the consumer waits. Making a batch takes ${time(ring.making.mean)} (p99 ${time(ring.making.p99)}).`;
  columns($('ring'), ring.occupancy, forecast.ring);

  // Three runs.
  if (report.differential) {
    const { synthetic, cached, cold } = report.differential;
    const stall = (fast, slow) => percent(Math.max(1 - slow / Math.max(fast, 1e-9), 0));
    $('runs').hidden = false;
    $('runs-note').textContent = `Images per second of three runs, which isolate the consumer, preparation and fetching: preparing takes ${stall(synthetic, cached)}, `
      + `fetching ${stall(cached, cold)}.`;
    $('runs-bars').append(...bars([['without a loader', synthetic, rate(synthetic)], ['from memory', cached, rate(cached)],
      ['unchanged', cold, rate(cold)]]));
  }

  table($('memory'), [['memory'], ['planned']], [
    [`ring: ${report.model.slots} slots of ${size(setup.batch_bytes)}`, size(report.model.slots * setup.batch_bytes)],
    ['host memory of the plan', size(setup.host_bytes)], ['device memory of the plan', size(setup.device_bytes)],
    ['available host memory', setup.memory_available > 0 ? size(setup.memory_available) : 'not known']]);

  // Evidence, settings and data.
  $('evidence').append(...report.evidence.map((line) => make('li', {}, line)));
  const given = (value, text) => (value === null || value === undefined ? 'not set' : text(value));
  const yes = (value) => (value ? 'yes' : 'no');
  const settings = [
    ['source', data.source], ['device', setup.device], ['loader.batch_size', setup.batch], ['loader.num_workers', setup.workers],
    ['loader.prefetch', setup.prefetch], ['rank, world', `${setup.rank}, ${setup.world}`], ['processors', setup.cores],
    ['processors used, used by others', `${given(profile.processors?.used, (it) => it.toFixed(2))}, ${given(profile.processors?.others, (it) => it.toFixed(2))}`],
    ['CPU quota', given(profile.processors?.quota, (it) => it.toFixed(2))],
    ['sample', `${setup.width} × ${setup.height}`], ['pages of the device', given(setup.pages, String)],
    ['decodes on the device', yes(setup.decodes_on_device)],
    ['operators on host, device', `${setup.operators_on_host}, ${setup.operators_on_device}`],
    ['over a network', setup.remote ? `yes: ${setup.connections} connections, ${setup.read_ahead} samples prefetched` : 'no'],
    ['decode.prescale', yes(setup.prescale)], ['cache.encoded', given(setup.cache_encoded, size)],
    ['cache.decoded', given(setup.cache_decoded, size)], ['cache.presize', given(setup.presize, String)],
    ['samples', count(data.samples)], ['samples per epoch', count(data.epoch_samples)], ['mean file', size(data.mean_bytes)],
    ['mean image', `${(data.mean_pixels / 1e6).toPrecision(3)} megapixels`],
    ['mean decoded window', `${(data.mean_window_pixels / 1e6).toPrecision(3)} megapixels`],
    ['measured for', time(profile.seconds)], ['images, batches', `${count(profile.images)}, ${count(profile.batches)}`],
  ];
  $('settings').append(...settings.map(([name, value], at) => make('div', { class: at < 2 ? 'wide' : null },
    make('dt', {}, name), make('dd', {}, String(value)))));

  $('main').hidden = false;
})();
