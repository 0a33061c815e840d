
// Fills in the page of several ranks, which are sorted slowest first.
(() => {
  'use strict';
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const $ = (id) => document.getElementById(id);
  const report = read('report'), causes = Object.fromEntries(read('causes'));
  const { ranks, cost, knobs, world } = report, usual = report.usual_images_per_second;
  const slow = ranks.filter((it) => it.slow), last = ranks[0];
  // Many ranks: the rows show only the slowest, the strip shows all, and sections that open show the others.
  const shown = ranks.length <= 24 ? ranks.length : 16, first = ranks.slice(0, shown), rest = ranks.slice(shown);
  const call = (it) => `rank ${it.rank}`;
  const counted = (many, of) => `${many} ${of}${many === 1 ? '' : 's'}`;
  const kind = (name, it) => (it.slow ? `${name} slow` : name);
  const own = (rank) => knobs.filter((knob) => knob.ranks.some(([named]) => named === rank));

  // The top.
  $('of').textContent = ` · ${ranks.length}${world > ranks.length ? ` of ${world}` : ''} ranks`;
  const money = (value) => (value >= 1 ? value.toFixed(2) : value.toPrecision(2));
  const numbers = last.slow_steps ? [
    [rate(last.consumer_images_per_second), `images/s could be used by the slowest steps, of ${call(last)}`, 'bad'],
    [rate(report.usual_consumer_images_per_second), "images/s is the median"],
    [rate(last.loader_images_per_second), `images/s could be delivered by the loader of ${call(last)}`],
  ] : [
    [rate(last.loader_images_per_second), `images/s could be delivered by the slowest loader, of ${call(last)}`, slow.length > 0 ? 'bad' : null],
    [rate(usual), "images/s is the median"],
    [percent(last.consumer_waits), `of the time the consumer of ${call(last)} waits`, last.slow && !last.slow_steps ? 'bad' : null],
  ];
  if (cost) {
    numbers.push([signed(Math.max(cost.without / Math.max(cost.images_per_second, 1e-9) - 1, 0)),
      `images/s on every rank without ${slow.length === 1 ? 'the slow one' : `the ${slow.length} slow ones`}: ${rate(cost.without)} each`]);
    if (typeof cost.lost_per_epoch === 'number') numbers.push([money(cost.lost_per_epoch), 'per epoch is the cost of waiting for slow ranks, for all ranks']);
  }
  if (world > ranks.length) numbers.push([String(world - ranks.length), `of the ${world} ranks have no report here`, 'bad']);
  $('numbers').append(...numbers.map(([value, text, kind]) => make('li', {}, make('b', { class: kind }, value), make('span', {}, text))));

  // Redraws when the width changes.
  const drawn = (element, draw) => {
    let width = 0;
    const again = () => {
      if (element.clientWidth === width) return;
      width = element.clientWidth;
      element.replaceChildren(draw(Math.max(width, 240)));
    };
    again();
    new ResizeObserver(again).observe(element);
  };
  const f = (value) => value.toFixed(1);
  const label = (svg, x, y, anchor, words, kind) => svg.append(make('text', { x: f(x), y: f(y), 'text-anchor': anchor, class: kind }, words));
  const box = (svg, kind, x, y, width, height) => svg.append(make('rect', { class: kind, x: f(x), y: f(y), width: f(Math.max(width, 0)), height: f(height) }));

  // Bars end at 1.3 times the median loader, so that a loader that is far faster than needed does not hide the others.
  const scale = Math.max(...ranks.map((it) => it.images_per_second),
    Math.min(Math.max(...ranks.map((it) => it.loader_images_per_second)), 1.3 * usual), 1e-9);
  const part = (value) => Math.min(value / scale, 1);
  const says = (it) => `${call(it)}${it.slow ? ', slow' : ''}: did ${rate(it.images_per_second)} images/s, its loader could deliver `
    + `${rate(it.loader_images_per_second)} and its steps use ${rate(it.consumer_images_per_second)}; its consumer waits ${percent(it.consumer_waits)} of the time; ${causes[it.cause]}`;

  // One row per rank: its throughput, that of its loader, and the waiting of its consumer.
  const rows = (width) => {
    const short = width < 560, longest = (texts) => 7 * Math.max(...texts.map((it) => it.length));
    const did = (it) => (short ? rate(it.images_per_second) : `${rate(it.images_per_second)} of ${rate(it.loader_images_per_second)}`);
    const left = Math.min(90, 22 + longest(first.map(call))), number = 26 + longest(first.map(did));
    const room = width - left - number - 56, rates = { x: left, width: 0.62 * room }, waits = { x: left + 0.62 * room + number, width: 0.38 * room };
    const top = 38, high = 24, bottom = top + high * first.length;
    const svg = make('svg', { viewBox: `0 0 ${width} ${bottom + 6}`, role: 'img',
      'aria-label': 'Images per second of each rank, and the share of the time in which its consumer waits' });
    label(svg, rates.x, 12, 'start', short ? 'images/s' : 'images/s: measured, and (light) what its loader could deliver');
    label(svg, waits.x, 12, 'start', short ? 'waits' : 'of the time its consumer waits');
    first.forEach((it, at) => {
      const y = top + high * at, middle = y + 13;
      label(svg, rates.x - 8, middle, 'end', call(it), it.slow ? 'slow' : null);
      box(svg, kind('could', it), rates.x, y + 3, rates.width * part(it.loader_images_per_second), high - 9);
      box(svg, kind('did', it), rates.x, y + 6, rates.width * part(it.images_per_second), high - 15);
      label(svg, rates.x + rates.width + 6, middle, 'start', did(it), it.slow ? 'slow' : null);
      box(svg, 'frame', waits.x, y + 4, waits.width, high - 11);
      box(svg, kind('wait', it), waits.x, y + 4, waits.width * Math.min(Math.max(it.consumer_waits, 0), 1), high - 11);
      label(svg, waits.x + waits.width + 6, middle, 'start', percent(it.consumer_waits), it.slow ? 'slow' : null);
    });
    const x = f(rates.x + rates.width * part(usual));
    svg.append(make('line', { class: 'usual', x1: x, x2: x, y1: top - 6, y2: bottom }));
    label(svg, Number(x), top - 10, 'middle', 'median');
    return svg;
  };
  const which = rest.length > 0 ? `The ${shown} slowest of ${ranks.length}, the slowest first. ` : 'The slowest first. ';
  const marks = slow.length > 0 ? `In red: ${slow.length === 1 ? 'the slow rank' : `${slow.length} slow ranks`}, whose loader could deliver, or whose own steps could use, at least 10 % less than the median.`
    : 'None could deliver or use at least 10 % less than the median.';
  $('side-note').textContent = which + marks;

  // With many ranks, a strip shows all of them by number, because neighbours often share a machine.
  const byNumber = [...ranks].sort((a, b) => a.rank - b.rank);
  let spots = [], cursor = null, place = null;
  const strip = (width) => {
    const lines = Math.ceil(byNumber.length / Math.max(8 * Math.floor((width - 2) / 3 / 8), 8));
    const each = 8 * Math.ceil(byNumber.length / lines / 8), wide = (width - 2) / each;
    const high = { rates: 44, gap: 2, waits: 12, words: 22 }, line = high.rates + high.gap + high.waits + high.words;
    const svg = make('svg', { viewBox: `0 0 ${width} ${line * lines}`, role: 'img', 'aria-label': `${ranks.length} ranks by their numbers` });
    const bar = wide > 4 ? wide - 1 : wide > 2 ? wide - 0.5 : wide;
    spots = byNumber.map((it, at) => {
      const x = 1 + at % each * wide, y = line * Math.floor(at / each);
      const could = high.rates * part(it.loader_images_per_second), waits = high.waits * Math.min(Math.max(it.consumer_waits, 0), 1);
      box(svg, kind('did', it), x, y + high.rates - could, bar, could);
      box(svg, kind('wait', it), x, y + high.rates + high.gap, bar, waits);
      return { x, y };
    });
    for (let at = 0; at < lines; at++) {
      const begin = at * each, end = Math.min(begin + each, byNumber.length) - 1, y = line * at + line - high.words + 14;
      // Labels slow ranks if their labels fit, and others at intervals.
      const taken = [];
      const name = (index, slow) => {
        const x = spots[index].x + wide / 2, words = String(byNumber[index].rank), half = 4 * words.length + 4;
        if (taken.some(([from, to]) => x - half < to && x + half > from)) return;
        taken.push([x - half, x + half]);
        const anchor = x < half ? 'start' : x > width - half ? 'end' : 'middle';
        label(svg, anchor === 'start' ? spots[index].x : anchor === 'end' ? spots[index].x + wide : x, y, anchor, words, slow ? 'slow' : null);
      };
      for (let index = begin; index <= end; index++) if (byNumber[index].slow) name(index, true);
      name(begin, false);
      name(end, false);
      const every = 8 * 2 ** Math.max(Math.ceil(Math.log2(72 / wide / 8)), 0);
      for (let index = begin; index <= end; index += every) name(index, false);
    }
    cursor = make('rect', { class: 'frame', width: f(wide), height: high.rates + high.gap + high.waits, visibility: 'hidden', style: { stroke: 'var(--text)' } });
    svg.append(cursor);
    if (place !== null) show(place);
    const find = (event) => {
      const bounds = svg.getBoundingClientRect(), across = (event.clientX - bounds.left) / bounds.width * width - 1;
      const down = Math.floor((event.clientY - bounds.top) / bounds.height * lines);
      return down * each + Math.min(Math.max(Math.floor(across / wide), 0), each - 1);
    };
    svg.addEventListener('pointermove', (event) => show(find(event)));
    svg.addEventListener('click', (event) => { show(find(event)); open(byNumber[place]); });
    return svg;
  };
  function show(at) {
    place = Math.min(Math.max(at, 0), byNumber.length - 1);
    const { x, y } = spots[place];
    for (const [name, value] of [['x', f(x)], ['y', f(y)], ['visibility', 'visible']]) cursor.setAttribute(name, value);
    $('readout').textContent = says(byNumber[place]);
  }
  if (rest.length > 0) {
    $('all').hidden = false;
    $('strip-note').textContent = `All ${ranks.length} ranks by number: above, what each loader could deliver; below, in grey, the share of the `
      + 'time in which its consumer waits. Slow ranks are red.';
    $('readout').textContent = 'Point at a rank, or use the arrow keys, to read its numbers.';
    $('strip').onkeydown = (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by && !(event.key === 'Enter' && place !== null)) return;
      event.preventDefault();
      if (by) show(place === null ? (by > 0 ? 0 : byNumber.length - 1) : place + by); else open(byNumber[place]);
    };
  }

  // Section with the other ranks, which is filled in when it is opened.
  const later = (id, rest, words, fill) => {
    const element = $(id);
    if (rest.length === 0) return;
    element.hidden = false;
    element.querySelector('summary').textContent = words;
    element.addEventListener('toggle', fill, { once: true });
  };

  // Stages by rank.
  const names = report.usual_stages.map(([name]) => name);
  const usually = Object.fromEntries(report.usual_stages);
  const sum = (stages) => stages.reduce((all, [, ms]) => all + ms, 0);
  const median = (values) => values.sort((a, b) => a - b)[values.length >> 1];
  const usual_of = { workers: median(ranks.map((it) => it.workers)), cores: median(ranks.map((it) => it.cores)) };
  const amount = (it, what) => (it[what] < usual_of[what] ? make('b', { class: 'bad' }, String(it[what])) : String(it[what]));
  const columns = [[''], ...names.map((name) => [title(name)]), ['all'], ['own steps'], ['workers'], ['processors']];
  const steps = (it) => {
    const text = time(1 / it.consumer_images_per_second);
    if (!it.slow_steps) return text;
    return make('b', { class: 'bad' }, `${text}, ${(report.usual_consumer_images_per_second / it.consumer_images_per_second).toPrecision(3)} ×`);
  };
  const line = (it) => {
    const has = Object.fromEntries(it.stages);
    const cells = names.map((name) => {
      if (has[name] === undefined) return '';
      const text = time(1e-3 * has[name]);
      if (!it.deviates.includes(name)) return text;
      const times = has[name] / usually[name];
      return make('b', { class: 'bad' }, Number.isFinite(times) ? `${text}, ${times < 10 ? times.toPrecision(3) : times.toFixed(0)} ×` : text);
    });
    return [it.slow ? [make('b', { class: 'bad' }, `${call(it)}, slow`)] : call(it), ...cells, time(1e-3 * sum(it.stages)), steps(it), amount(it, 'workers'), amount(it, 'cores')];
  };
  const middle = ['median', ...names.map((name) => time(1e-3 * usually[name])), time(1e-3 * sum(report.usual_stages)), time(1 / report.usual_consumer_images_per_second), String(usual_of.workers), String(usual_of.cores)];
  table($('stages'), columns, [middle, ...first.map(line)]);
  later('more-stages', rest, `${rest.length} other ranks`, () => table($('other-stages'), columns, rest.map(line)));

  // What to change.
  const list = (named) => {
    const some = named.slice(0, 12).map(([rank, gain]) => `${rank} (${signed(gain)})`);
    const more = named.length - some.length;
    return `Ranks ${some.join(', ')}${more > 0 ? ` and ${more} more` : ''}`;
  };
  const most = Math.max(...knobs.map((it) => it.ranks[0][1]), 1e-9);
  const setting = (knob) => make('div', { class: 'knob' },
    make('div', { class: 'set' }, make('code', {}, knob.setting)),
    make('div', { class: 'row' }, bar([['', knob.ranks[0][1] / most]], signed(knob.ranks[0][1])),
      make('b', {}, `${signed(knob.ranks[0][1])} on rank ${knob.ranks[0][0]}`)),
    knob.ranks.length > 1 ? make('p', { class: 'named' }, `${list(knob.ranks)}.`) : null,
    make('p', { class: 'note' }, `Costs: ${knob.cost}. Then ${causes[knob.then]}.`));
  const FEW = 6;
  $('knobs-note').textContent = knobs.length === 0 ? 'No report recommends a setting.' : slow.length === 0
    ? "Settings from the ranks' reports, with the gain of each rank alone."
    : 'Settings from the reports, with the gain of each rank alone; those for slow ranks come first. As long as a rank is slow, only making it faster helps the others.';
  $('knobs').append(...knobs.slice(0, FEW).map(setting));
  later('more-knobs', knobs.slice(FEW), counted(knobs.length - FEW, 'other setting'), () => $('other-knobs').append(...knobs.slice(FEW).map(setting)));

  // Rank by rank.
  const details = (it) => make('details', { class: 'rank', id: `rank-${it.rank}` },
    make('summary', {}, make('b', { class: it.slow ? 'bad' : null }, `Rank ${it.rank}${it.slow ? ', slow' : ''}`), `: ${it.verdict}`),
    make('p', {}, `Did ${rate(it.images_per_second)} images/s; its loader could deliver ${rate(it.loader_images_per_second)}, and its own steps use ${rate(it.consumer_images_per_second)}. ${counted(it.workers, 'worker')}, ${counted(it.cores, 'processor')}.`),
    make('ul', {}, ...it.evidence.map((line) => make('li', {}, line))),
    ...own(it.rank).map((knob) => make('p', {}, make('code', {}, knob.setting), ` gives ${signed(knob.ranks.find(([rank]) => rank === it.rank)[1])}`)));
  $('ranks').append(...first.map(details));
  let all = rest.length === 0;
  const others = () => {
    if (all) return;
    all = true;
    $('other-ranks').append(...rest.map(details));
  };
  later('more-ranks', rest, `${rest.length} other ranks`, others);
  function open(it) {
    if (rest.includes(it)) {
      others();
      $('more-ranks').open = true;
    }
    const element = $(`rank-${it.rank}`);
    element.open = true;
    element.scrollIntoView({ block: 'start' });
    element.querySelector('summary').focus({ preventScroll: true });
  }

  $('main').hidden = false;
  if (slow.length > 0) $(`rank-${last.rank}`).open = true;
  drawn($('side'), rows);
  if (rest.length > 0) drawn($('strip'), strip);
})();
