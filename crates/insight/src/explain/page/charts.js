
// Formats numbers, creates elements, and draws the charts of the page.

function percent(share) {
  const value = 100 * share;
  return Math.abs(value) < 9.95 ? `${value.toFixed(1)} %` : `${value.toFixed(0)} %`;
}

function signed(share) {
  return share < 0 ? `−${percent(-share)}` : `+${percent(share)}`;
}

function rate(value) {
  if (!Number.isFinite(value)) return 'any';
  return value >= 1e4 ? count(value) : value >= 100 ? value.toFixed(0) : value.toPrecision(3);
}

function time(seconds) {
  const [value, unit] = seconds >= 1 ? [seconds, ' s'] : seconds >= 1e-3 ? [1e3 * seconds, ' ms']
    : seconds >= 0.5e-6 ? [1e6 * seconds, ' µs'] : [0, ' ms'];
  return (value >= 100 || value === 0 ? value.toFixed(0) : value.toPrecision(3)) + unit;
}

function size(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let at = 0, value = bytes;
  while (Math.abs(value) >= 1024 && at + 1 < units.length) { value /= 1024; at += 1; }
  return `${at === 0 || Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(3)} ${units[at]}`;
}

// Rounds up to 1, 2 or 5 times a power of ten.
function tick(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((it) => it * power).find((it) => it >= 0.999 * least);
}

function count(value) {
  return String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, '\u202f');
}

function title(name) {
  return name.replace(/_/g, ' ');
}

// Texts become text nodes, so no text of a report is parsed as markup. Styles are set through the object model, because the
// policy of the page forbids style attributes.
function make(tag, attributes, ...children) {
  const svg = ['svg', 'g', 'path', 'rect', 'line', 'text'].includes(tag);
  const it = svg ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name === 'style') Object.assign(it.style, value);
    else if (value !== null && value !== undefined) it.setAttribute(name, value);
  }
  it.append(...children.filter((child) => child !== null && child !== undefined));
  return it;
}

// Stacked bar; parts are pairs of a class and a share.
function bar(parts, label) {
  const width = (share) => ({ width: `${100 * Math.min(Math.max(share, 0), 1)}%` });
  const pieces = parts.map(([name, share, style]) => make('i', { class: name, style: { ...width(share), ...style } }));
  return make('div', { class: 'bar', role: 'img', 'aria-label': label }, ...pieces);
}

// Rows of a name, a bar and a number, relative to the largest number.
function bars(rows) {
  const most = Math.max(...rows.map(([, value]) => value), 1e-12);
  return rows.map(([name, value, text]) => make('div', { class: 'row' }, make('span', {}, name),
    bar([['', value / most]], `${name}: ${text}`), make('span', {}, text)));
}

// Columns are a name and whether the cell is a bar. On narrow screens each row becomes a card with named cells.
function table(element, columns, rows) {
  element.className = 'cards';
  const head = columns.map(([name, wide]) => make('th', { scope: 'col', class: wide ? 'all' : null }, name));
  const body = rows.map((cells) => make('tr', {}, ...cells.map((cell, at) => {
    const [name, wide] = columns[at];
    const attributes = at === 0 ? { scope: 'row' } : { 'data-name': name, class: wide ? 'all' : null };
    return make(at === 0 ? 'th' : 'td', attributes, ...[cell].flat());
  })));
  element.replaceChildren(make('thead', {}, make('tr', {}, ...head)), make('tbody', {}, ...body));
}

// Shares of the time by number of ready batches; dashed: predicted by the model.
function columns(element, shares, model) {
  const many = Math.max(shares.length, model.length), most = Math.max(...shares, ...model, 0.01);
  const every = Math.ceil(many / 18), up = (share) => `${100 * share / most}%`;
  const parts = [];
  for (let ready = 0; ready < many; ready++) {
    const share = shares[ready] ?? 0, label = `${ready} ready: ${percent(share)}, the model ${percent(model[ready] ?? 0)}`;
    parts.push(make('div', { role: 'img', 'aria-label': label, title: label },
      make('div', { class: 'column' }, make('i', { style: { height: up(share) } }), make('u', { style: { bottom: up(model[ready] ?? 0) } })),
      make('span', {}, ready % every === 0 ? String(ready) : '\u00a0'),
      many <= 9 ? make('span', {}, percent(share)) : null));
  }
  element.replaceChildren(...parts);
}

// Timeline: busy threads by stage, ready batches, and the share of each interval in which the consumer waited. Moments
// hold totals since the start; the chart shows their differences.
function timeline(profile, order, element, readout) {
  const moments = profile.timeline, last = moments.length - 1;
  if (last < 1 || !(moments[last].seconds > moments[0].seconds)) {
    element.replaceChildren(make('p', { class: 'note' }, 'Too few batches for a timeline.'));
    return;
  }
  const begin = moments[0].seconds, length = moments[last].seconds - begin;
  const stages = order.map((name, at) => ({ name, at })).filter(({ at }) => moments[last].busy[at] > moments[0].busy[at]);
  const slots = Math.max(profile.ring.slots, ...moments.map((it) => it.ready), 1);

  // Interpolates a total between two moments.
  const sum = (of, seconds) => {
    let low = 0, high = last;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (moments[middle].seconds <= seconds) low = middle; else high = middle;
    }
    const [a, b] = [moments[low], moments[high]], span = b.seconds - a.seconds;
    const part = span > 0 ? Math.min(Math.max((seconds - a.seconds) / span, 0), 1) : 1;
    return of(a) + part * (of(b) - of(a));
  };
  const many = Math.min(96, last), wide = length / many;
  const bins = Array.from({ length: many }, (_, at) => {
    const from = begin + at * wide;
    const busy = stages.map((stage) => (sum((it) => it.busy[stage.at], from + wide) - sum((it) => it.busy[stage.at], from)) / wide);
    const waits = (sum((it) => it.waited, from + wide) - sum((it) => it.waited, from)) / wide;
    return { from, busy, waits: Math.min(Math.max(waits, 0), 1), ready: sum((it) => it.ready, from + wide / 2) };
  });
  // The scale ends at the number of workers, or higher if other threads are busy too.
  const threads = Math.max(...bins.map((it) => it.busy.reduce((all, one) => all + one, 0)), profile.setup.workers, 1);

  const draw = () => {
    const width = Math.max(element.clientWidth, 240), left = 30, right = width - 4;
    const panels = { busy: [18, 150], ready: [190, 62], waits: [274, 46] }, bottom = 320;
    const x = (seconds) => left + (seconds - begin) / length * (right - left);
    const y = ([top, height], share) => top + height * (1 - share);
    const f = (value) => value.toFixed(1);
    const svg = make('svg', { viewBox: `0 0 ${width} 342`, role: 'img',
      'aria-label': `Timeline of ${time(length)}: threads busy by stage, batches ready, and the waiting of the consumer` });
    const text = (at, height, anchor, words) => svg.append(make('text', { x: at, y: height, 'text-anchor': anchor }, words));

    // Stall: the consumer waited for more than half of the interval.
    for (let at = 0; at < many; at++) {
      if (bins[at].waits <= 0.5) continue;
      const first = at;
      while (at + 1 < many && bins[at + 1].waits > 0.5) at += 1;
      const from = x(bins[first].from), to = x(bins[at].from + wide);
      for (const [top, height] of [panels.busy, panels.ready]) {
        svg.append(make('rect', { class: 'stall', x: f(from), width: f(to - from), y: top, height }));
      }
    }


    const below = new Array(many).fill(0);
    stages.forEach((stage, number) => {
      let up = '', down = '';
      bins.forEach((it, at) => {
        const [from, to] = [f(x(it.from)), f(x(it.from + wide))], low = f(y(panels.busy, below[at] / threads));
        below[at] += it.busy[number];
        const high = f(y(panels.busy, below[at] / threads));
        up += `${at === 0 ? 'M' : 'L'}${from} ${high}H${to}`;
        down = `L${to} ${low}H${from}${down}`;
      });
      svg.append(make('path', { class: 'layer', d: `${up}${down}Z`, style: { fill: `var(--${stage.name})` } }));
    });

    let level = '', waits = '';
    for (let at = 1; at <= last; at++) {
      const [a, b] = [moments[at - 1], moments[at]], span = b.seconds - a.seconds;
      level += `${at === 1 ? 'M' : 'L'}${f(x(a.seconds))} ${f(y(panels.ready, a.ready / slots))}H${f(x(b.seconds))}`;
      const share = span > 0 ? Math.min((b.waited - a.waited) / span, 1) : 0;
      if (share > 0) waits += `M${f(x(a.seconds))} ${bottom}V${f(y(panels.waits, share))}H${f(x(b.seconds))}V${bottom}Z`;
    }
    const floor = panels.ready[0] + panels.ready[1];
    svg.append(make('path', { class: 'level', d: `${level}V${floor}H${f(x(begin))}Z` }), make('path', { class: 'waits', d: waits }));
    for (const [top, height] of Object.values(panels)) {
      svg.append(make('rect', { class: 'frame', x: left, y: top, width: right - left, height }));
    }
    const short = width < 560;
    text(left, 12, 'start', short ? `threads busy, of ${profile.setup.workers} workers` : `threads busy by stage, of ${profile.setup.workers} workers`);
    text(left, 184, 'start', short ? `batches ready, of ${slots} slots` : `ready batches after the consumer took one, of ${slots} slots`);
    text(left, 268, 'start', short ? 'share of time the consumer waits' : 'share of the time in which the consumer waits; shaded above: more than half');
    text(left - 5, panels.busy[0] + 10, 'end', threads.toFixed(threads < 10 && threads % 1 > 0.05 ? 1 : 0));
    text(left - 5, panels.ready[0] + 10, 'end', slots);
    text(left - 5, panels.waits[0] + 10, 'end', '1');
    for (const [top, height] of Object.values(panels)) text(left - 5, top + height, 'end', '0');
    for (let seconds = 0; seconds <= length; seconds += tick(length / (short ? 3 : 7))) {
      const at = x(begin + seconds);
      text(at, 337, seconds === 0 ? 'start' : right - at < 20 ? 'end' : 'middle', time(seconds).replace(/\.0+ |(\.\d*?)0+ /, '$1 '));
    }
    const cursor = make('line', { class: 'cursor', y1: panels.busy[0], y2: bottom, visibility: 'hidden' });
    svg.append(cursor);
    element.replaceChildren(svg);

    let place = null;
    const show = (at) => {
      place = Math.min(Math.max(at, 0), many - 1);
      const { from, busy, ready, waits } = bins[place], middle = x(from + wide / 2);
      cursor.setAttribute('x1', middle);
      cursor.setAttribute('x2', middle);
      cursor.setAttribute('visibility', 'visible');
      const parts = stages.map((stage, number) => [title(stage.name), busy[number]]).filter(([, many]) => many > 0.005);
      readout.textContent = `${time(from - begin + wide / 2)}: ${parts.map(([name, many]) => `${name} ${many.toFixed(2)}`).join(', ')} `
        + `threads; ${ready.toFixed(1)} batches ready; the consumer waits ${percent(waits)}`;
    };
    svg.addEventListener('pointermove', (event) => {
      const box = svg.getBoundingClientRect(), at = (event.clientX - box.left) / box.width * width;
      show(Math.floor((at - left) / (right - left) * many));
    });
    element.onkeydown = (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by) return;
      event.preventDefault();
      show(place === null ? (by > 0 ? 0 : many - 1) : place + by);
    };
  };
  readout.textContent = 'Point at the timeline, or use the arrow keys, to read its numbers.';
  draw();
  let drawn = element.clientWidth;
  new ResizeObserver(() => {
    if (element.clientWidth === drawn) return;
    drawn = element.clientWidth;
    draw();
  }).observe(element);
}
