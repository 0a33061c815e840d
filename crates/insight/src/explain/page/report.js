
// Fills in the page from the report, and simulates the settings of the sliders.
(() => {
  'use strict';
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const $ = (id) => document.getElementById(id);
  const report = read('report'), causes = Object.fromEntries(read('causes'));
  const { profile, forecast } = report, { setup, consumer, data, ring } = profile;
  const STAGES = ['list', 'read', 'header', 'decode', 'upload', 'device_decode', 'transform', 'kernel', 'hand_over'];
  const on_device = setup.pages !== null && setup.pages !== undefined;

  // The top.
  const where = [data.source, setup.device, setup.world > 1 ? `rank ${setup.rank} of ${setup.world}` : ''];
  $('of').textContent = where.filter((it) => it).map((it) => ` · ${it}`).join('');
  const waiting = (epoch_seconds, waits) => epoch_seconds * waits / 3600 * report.cost.price_per_hour;
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
  report.knobs.forEach((knob, at) => {
    const copies = make('button', { type: 'button', 'aria-label': `Copy ${knob.setting}` }, 'Copy');
    const tries = make('button', { type: 'button', 'aria-label': `Try ${knob.setting} in the model` }, 'Try');
    copies.onclick = () => copy(knob.setting, copies);
    tries.onclick = () => { start(at + 1); $('start').scrollIntoView({ block: 'center' }); $('start').focus({ preventScroll: true }); };
    const gain = signed(knob.gain);
    $('knobs').append(make('div', { class: 'knob' },
      make('div', { class: 'set' }, make('code', {}, knob.setting), copies, tries),
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

  // The sliders. `of` is the model that they change; `step` is the step time for the batch size of that model.
  const models = [report.model, ...report.knobs.map((it) => it.model)], alone = models.length;
  if (report.model.contention) models.push({ ...report.model, contention: null });
  const state = { of: 0, workers: 1, prefetch: 1, batch: 1, step: 0 };
  const range = (from, to) => Array.from({ length: to - from + 1 }, (_, at) => from + at);
  const sorted = (values) => [...new Set(values)].sort((a, b) => a - b);
  const all = (get) => models.map(get);
  const batches = all((it) => it.batch), steps = all((it) => it.consumer.step.mean);
  const longest = Math.max(1, 4 * Math.max(...steps));
  // 24 values per decade from 0.1 ms on, and almost 0.
  const geometric = range(0, Math.ceil(24 * Math.log10(longest / 1e-4))).map((at) => Number((1e-4 * 10 ** (at / 24)).toPrecision(3)));
  const sliders = {
    workers: { label: 'Workers', unit: 'loader.num_workers', values: range(1, Math.max(16, 4 * setup.cores, ...all((it) => 2 * it.workers.length))), text: String },
    prefetch: { label: 'Ring depth', unit: 'loader.prefetch', values: range(1, Math.max(16, ...all((it) => 2 * (it.slots - 1)))), text: String },
    batch: { label: 'Batch', unit: 'loader.batch_size', values: sorted([...batches, ...range(0, 20).map((at) => 2 ** at)
      .filter((it) => it <= Math.max(256, 4 * Math.max(...batches)))]), text: String },
    step: { label: 'Step time', unit: 'consumer', values: sorted([1e-7, ...steps, ...geometric]), text: time },
  };
  const nearest = (values, value) => values.reduce((best, it, at) => (Math.abs(it - value) < Math.abs(values[best] - value) ? at : best), 0);
  const grows = () => state.batch / models[state.of].batch;
  const value = (name) => (name === 'step' ? state.step * grows() : state[name]);

  const choice = make('select', { id: 'start' }, make('option', { value: 0 }, 'as measured'),
    ...report.knobs.map((it, at) => make('option', { value: at + 1 }, `with ${it.setting}`)),
    models.length > alone ? make('option', { value: alone }, 'without other programs') : null);
  choice.onchange = () => start(Number(choice.value));
  const reset = make('button', { type: 'button', id: 'reset' }, 'Reset');
  reset.onclick = () => start(0);
  $('sliders').onsubmit = (event) => event.preventDefault();
  $('sliders').append(make('p', { class: 'slider' }, make('label', { for: 'start' }, 'Begin with'), choice));
  for (const [name, it] of Object.entries(sliders)) {
    it.input = make('input', { type: 'range', id: name, min: 0, max: it.values.length - 1, step: 1 });
    it.output = make('output', { for: name });
    it.note = make('small', {});
    it.input.oninput = () => {
      const chosen = it.values[Number(it.input.value)];
      state[name] = name === 'step' ? chosen / grows() : chosen;
      show();
    };
    $('sliders').append(make('div', { class: 'slider' }, make('label', { for: name }, it.label, it.output), it.input, it.note));
  }
  $('sliders').append(reset);

  function start(of) {
    const { workers, slots, batch, consumer } = models[of];
    Object.assign(state, { of, workers: workers.length, prefetch: slots - 1, batch, step: consumer.step.mean });
    choice.value = of;
    show();
  }

  function changed() {
    const model = structuredClone(models[state.of]), { workers, prefetch } = state;
    // Added workers are as fast as a normal one; the last ones are removed first.
    model.workers = range(0, workers - 1).map((at) => model.workers[at] ?? 1);
    model.starts = [];
    model.slots = prefetch + 1;
    model.batch = state.batch;
    model.consumer.step.mean = value('step');
    return model;
  }

  // Simulates as long as the report's own forecast, so that equal settings give equal numbers, but shorter where that would block
  // the page for seconds.
  function simulated(model) {
    const options = { batches: Math.min(Math.max(Math.floor(24000 / model.batch), 60), 1200), warm_up: 10 + 4 * model.slots };
    const visits = (options.batches + options.warm_up) * model.batch * model.stages.length, less = state.of === 0 && unchanged() ? 1 : 2e6 / visits;
    if (less < 1) {
      options.batches = Math.max(Math.ceil(options.batches * less), 5);
      options.warm_up = Math.max(Math.ceil(options.warm_up * less), model.slots);
    }
    return simulate(model, options);
  }
  const unchanged = () => Object.keys(sliders).every((name) => value(name) === own(name));
  const own = (name) => {
    const { workers, slots, batch, consumer } = report.model;
    return { workers: workers.length, prefetch: slots - 1, batch, step: consumer.step.mean }[name];
  };

  const LIMITS = { workers: 'the workers', cores: 'the processors', pages: 'the pages of the device', slots: 'the ring', consumer: 'the consumer' };
  const limit_name = (limit) => (typeof limit === 'string' ? LIMITS[limit] ?? limit : title(report.model.resources?.[limit.resource]?.name ?? 'a resource'));

  let pending = 0;
  function show() {
    for (const [name, it] of Object.entries(sliders)) {
      it.input.value = nearest(it.values, value(name));
      const text = it.text(value(name));
      it.input.setAttribute('aria-valuetext', text);
      it.output.textContent = text;
      it.note.textContent = `${it.unit}, now ${it.text(own(name))}`;
    }
    clearTimeout(pending);
    $('results').setAttribute('aria-busy', 'true');
    pending = setTimeout(calculate, 120);
  }

  function calculate() {
    const model = changed();
    let then;
    try {
      then = simulated(model);
    } catch (error) {
      $('limits').replaceChildren(make('p', { class: 'bad' }, `This cannot be simulated: ${error.message}`));
      $('results').replaceChildren();
      return;
    }
    results(model, then);
    limits(model, then);
    memory(model);
    columns($('ring'), ring.occupancy, then.ring);
    $('results').setAttribute('aria-busy', 'false');
  }

  function results(model, then) {
    const pair = (get) => [get(forecast, report.model), get(then, model)];
    // Shows measured values, and these values plus the change that the model predicts, so that they agree with the rest of the
    // report. `part` is the share of the time that a consumer with these steps waits at this rate.
    const scale = report.images_per_second / Math.max(forecast.samples_per_second, 1e-9);
    const [now_rate, then_rate] = [report.images_per_second, scale * then.samples_per_second];
    const part = (it, of) => 1 - scale * it.samples_per_second * of.consumer.step.mean / Math.max(of.batch, 1);
    const within = (it) => Math.min(Math.max(it, 0), 1);
    const shifted = (now, get) => { const [before, after] = pair(get); return [now, within(now + after - before)]; };
    const of = profile.processors, all_used = (of?.used ?? 0) + (of?.others ?? 0) + (of?.stolen ?? 0);
    const busy = typeof of?.used === 'number' ? within(all_used / Math.max(of.allowed || setup.cores, 1)) : forecast.cores;
    const waits = shifted(report.consumer_waits, part), epochs = [now_rate, then_rate].map((it) => data.epoch_samples / Math.max(it, 1e-9));
    const limit = (_, it) => { const [first] = capacity(it); return first ? limit_name(first[0]) : 'nothing'; };
    const gain = then.samples_per_second / forecast.samples_per_second - 1;
    const rows = [
      ['images/s', 'rate', [now_rate, then_rate], rate],
      ['the consumer waits', 'waits', waits, percent],
      ['batches found ready', 'readiness', shifted(consumer.readiness, (it) => it.readiness), percent],
      ['processors busy', 'cores', shifted(busy, (it) => it.cores), percent],
      ['an epoch takes', 'epoch', epochs, time],
    ];
    if (report.cost) rows.push(['waiting costs per epoch', 'cost', epochs.map((it, at) => waiting(it, waits[at])), money]);
    const cell = (id, value, text) => make('td', { id, 'data-value': value }, text);
    const body = rows.map(([name, id, [before, after], text]) => make('tr', {}, make('th', { scope: 'row' }, name),
      cell(`now-${id}`, before, text(before)), cell(`then-${id}`, after, text(after))));
    body.splice(1, 0, make('tr', {}, make('th', { scope: 'row' }, 'change'), make('td', {}, ''),
      cell('then-gain', gain, Math.abs(gain) < 5e-4 ? 'the same' : signed(gain))));
    const [before, after] = pair(limit);
    body.push(make('tr', {}, make('th', { scope: 'row' }, 'smallest bound'), cell('now-limit', before, before), cell('then-limit', after, after)));
    $('results').replaceChildren(make('thead', {}, make('tr', {}, make('th', {}, ''), make('th', { scope: 'col' }, 'measured'),
      make('th', { scope: 'col' }, 'with the sliders'))), make('tbody', {}, ...body));
  }

  function limits(model) {
    const found = capacity(model).map(([limit, most]) => [limit_name(limit), most, rate(most)]);
    // Bars end at four times the smallest, so that a part that allows a thousand times as much does not hide the others.
    const least = Math.max(found[0]?.[1] ?? 1, 1e-12);
    $('limits').replaceChildren(...bars(found.map(([name, most, text]) => [name, Math.min(most, 4 * least), text]), 0));
  }

  // Only the slots depend on prefetch and batch. The memory of threads is not modelled.
  function memory(model) {
    const slots = (it) => it.slots * setup.batch_bytes * it.batch / Math.max(report.model.batch, 1);
    const before = slots(report.model), more = slots(model) - before;
    const rows = [
      [`ring: ${report.model.slots} slots of ${size(setup.batch_bytes)}`, before, more],
      ['host memory of the plan', setup.host_bytes, on_device ? 0 : more],
      ['device memory of the plan', setup.device_bytes, on_device ? more : 0],
    ];
    table($('memory'), [['memory'], ['now'], ['the sliders add'], ['with the sliders']], [
      ...rows.map(([name, now, add]) => [name, size(now), add === 0 ? 'nothing' : `${add < 0 ? '−' : '+'}${size(Math.abs(add))}`, size(Math.max(now + add, 0))]),
      ['available host memory', setup.memory_available > 0 ? size(setup.memory_available) : 'not known', '', '']]);
  }

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
  start(0);
})();
