// JavaScript version of the simulation in run.rs and of the bounds in capacity.rs, for web pages. The results are equal bit for
// bit. These files explain the algorithm. This file has no imports and defines only two functions. Models and options are the
// JSON of Rust's `Model` and `Options`.

function simulate(model, options) {
  'use strict';
  const MAX_VISITS = 10000000, CONSUMER = 0xffffffff, NOBODY = -1;
  const START = 0, STAGE = 1, BATCH = 2, HOST = 3, STEP = 4;
  const BUSY = 0, QUEUED = 1, PAGE = 2, SLOT = 3;
  const { stages, consumer } = model;
  const starts = model.starts ?? [], per_batch = model.per_batch ?? 0;
  const holds = consumer.holds ?? true, host_share = consumer.host_share ?? 0;
  const paged = (model.pages ?? null) !== null, contention = model.contention ?? null;
  const wanted = options.batches ?? null, limit = options.seconds ?? null;
  const warm_up = options.warm_up ?? 0, keep = options.events ?? 0, seed = (options.seed ?? 0) >>> 0;
  if ((wanted === null && limit === null) || (wanted !== null && !(wanted > 0)) || (limit !== null && !(limit > 0))) {
    throw new Error('options: set batches or seconds to more than 0');
  }

  const mix = (value) => {
    value = Math.imul(value ^ (value >>> 16), 0x7feb352d);
    value = Math.imul(value ^ (value >>> 15), 0x846ca68b);
    return (value ^ (value >>> 16)) >>> 0;
  };
  const draw = (service, number, stream) => {
    const quantiles = service.quantiles;
    if (!quantiles || quantiles.length === 0) return service.mean;
    const bits = mix((mix(mix((seed + 0x9e3779b9) | 0) ^ number) + stream) | 0);
    return service.mean * quantiles[Math.floor(bits * quantiles.length / 4294967296)];
  };

  // Queue without moving the items behind the head.
  const fifo = () => {
    let items = [], head = 0;
    return {
      get length() { return items.length - head; },
      push(item) { items.push(item); },
      front() { return items[head]; },
      at(place) { return items[head + place]; },
      set(place, item) { items[head + place] = item; },
      shift() {
        const item = items[head++];
        if (head > 1024 && head * 2 > items.length) { items = items.slice(head); head = 0; }
        return item;
      },
    };
  };
  const level = () => ({ count: 0, since: 0, area: 0 });
  const until = (it, now) => it.area + it.count * (now - it.since);
  const change = (it, by) => { it.area = until(it, now); it.since = now; it.count += by; };

  let now = 0, order = 0, visits = 0, place = 0, next_number = 0, next_batch = 0, first_open = 0;
  let free_pages = model.pages ?? 0, free_slots = model.slots;
  let current = 0, waiting = false, rest = 0, steps = 0;
  let counting = warm_up === 0, begin = 0, arrivals = 0, found = 0, finished = 0, latencies = 0;
  let ready = 0, ready_since = 0;
  const heap = [], samples = [], unused = [], events = [], idle = fifo(), for_page = fifo(), for_slot = fifo(), open = fifo();
  const resources = model.resources ?? [];
  const pools = [model.cores, ...resources.map((it) => it.servers)].map((servers) => ({ servers, busy: level(), queue: fifo() }));
  const workers = model.workers.map(() => ({ state: SLOT, since: 0, sums: [0, 0, 0, 0] }));
  const waits = level(), ring = new Array(model.slots + 1).fill(0);
  const serving = stages.map(level), queued = stages.map(level);

  // Binary heap of events. Events at the same time happen in the order in which they were planned.
  const before = (a, b) => a.time < b.time || (a.time === b.time && a.order < b.order);
  const plan = (delay, kind, id) => {
    const item = { time: now + delay, order: order++, kind, id };
    let at = heap.length;
    heap.push(item);
    while (at > 0) {
      const up = (at - 1) >> 1;
      if (!before(item, heap[up])) break;
      heap[at] = heap[up];
      at = up;
    }
    heap[at] = item;
  };
  const pop = () => {
    const first = heap[0], last = heap.pop(), length = heap.length;
    if (length === 0) return first;
    let at = 0;
    for (;;) {
      let down = 2 * at + 1;
      if (down >= length) break;
      if (down + 1 < length && before(heap[down + 1], heap[down])) down++;
      if (!before(heap[down], last)) break;
      heap[at] = heap[down];
      at = down;
    }
    heap[at] = last;
    return first;
  };

  const log = (who, what, batch) => { if (events.length < keep) events.push({ time: now, who, what, batch }); };
  const turn = (worker, state) => {
    const it = workers[worker];
    it.sums[it.state] += now - it.since;
    it.since = now;
    it.state = state;
  };
  const ask_for_page = (worker) => {
    if (paged) {
      if (free_pages === 0) {
        turn(worker, PAGE);
        log({ worker }, 'waits', next_batch);
        for_page.push(worker);
        return;
      }
      free_pages -= 1;
    }
    ask_for_place(worker);
  };
  const ask_for_place = (worker) => {
    if (place === 0 && free_slots === 0) {
      turn(worker, SLOT);
      log({ worker }, 'waits', next_batch);
      for_slot.push(worker);
    } else {
      hand_out(worker);
    }
  };
  const hand_out = (worker) => {
    if (place === 0) {
      free_slots -= 1;
      open.push(model.batch + 1);
    }
    const batch = next_batch, sample = { worker, number: next_number++, batch, stage: 0, began: now };
    place += 1;
    if (place === model.batch) {
      place = 0;
      next_batch += 1;
    }
    const id = unused.length > 0 ? unused.pop() : samples.length;
    samples[id] = sample;
    log({ worker }, 'begins', batch);
    turn(worker, BUSY);
    enter_stage(id);
  };
  const pool_of = (on) => (on === 'wait' ? -1 : on === 'cpu' ? 0 : on.resource + 1);
  const enter_stage = (id) => {
    visits += 1;
    const { stage, worker } = samples[id], pool = pool_of(stages[stage].on);
    if (pool < 0 || occupy(pool, id)) {
      serve(id);
    } else {
      change(queued[stage], 1);
      if (worker !== NOBODY) turn(worker, QUEUED);
    }
  };
  const occupy = (at, id) => {
    const pool = pools[at];
    if (pool.busy.count < pool.servers) {
      change(pool.busy, 1);
      return true;
    }
    pool.queue.push(id);
    return false;
  };
  const vacate = (at) => {
    const pool = pools[at];
    if (pool.queue.length === 0) {
      change(pool.busy, -1);
      return;
    }
    const id = pool.queue.shift();
    if (id === CONSUMER) {
      begin_host_part();
      return;
    }
    const { stage, worker } = samples[id];
    change(queued[stage], -1);
    if (worker !== NOBODY) turn(worker, BUSY);
    serve(id);
  };
  const serve = (id) => {
    const { stage, worker, number } = samples[id], { on, service } = stages[stage];
    let time = draw(service, number, stage);
    if (worker !== NOBODY && (on === 'cpu' || on === 'wait')) time *= model.workers[worker];
    if (on === 'cpu' && contention) time *= Math.max(1 / contention.speed, pools[0].busy.count / contention.available);
    change(serving[stage], 1);
    plan(time, STAGE, id);
  };
  const end_stage = (id) => {
    const sample = samples[id], { stage, worker, batch, began } = sample, pool = pool_of(stages[stage].on);
    change(serving[stage], -1);
    if (pool >= 0) vacate(pool);
    if (stage + 1 < stages.length) {
      sample.stage = stage + 1;
      if (stages[stage + 1].detached && worker !== NOBODY) {
        sample.worker = NOBODY;
        let_go(worker, batch);
      }
      enter_stage(id);
      return;
    }
    latencies += now - began;
    finished += 1;
    const left = open.at(batch - first_open) - 1;
    open.set(batch - first_open, left);
    if (left > 1) free_sample(id);
    else plan(per_batch, BATCH, id);
  };
  const let_go = (worker, batch) => {
    log({ worker }, 'ends', batch);
    idle.push(worker);
  };
  const free_sample = (id) => {
    const { worker, batch } = samples[id];
    unused.push(id);
    if (paged) {
      if (for_page.length === 0) free_pages += 1;
      else ask_for_place(for_page.shift());
    }
    if (worker !== NOBODY) let_go(worker, batch);
  };
  const end_batch = (id) => {
    open.set(samples[id].batch - first_open, 0);
    free_sample(id);
    while (open.length > 0 && open.front() === 0) {
      open.shift();
      log('ring', 'ready', first_open);
      first_open += 1;
      set_ready(ready + 1);
      if (waiting) {
        waiting = false;
        change(waits, -1);
        take();
      }
    }
  };
  const set_ready = (to) => {
    ring[ready] += now - ready_since;
    ready_since = now;
    ready = to;
  };
  const arrive = () => {
    arrivals += 1;
    if (ready > 0) {
      found += 1;
      take();
    } else {
      waiting = true;
      change(waits, 1);
      log('consumer', 'waits', current);
    }
  };
  const take = () => {
    set_ready(ready - 1);
    log('consumer', 'begins', current);
    const step = draw(consumer.step, current, CONSUMER), host = step * host_share;
    rest = step - host;
    if (!holds) free_slot();
    if (host > 0) {
      if (occupy(0, CONSUMER)) begin_host_part();
    } else {
      plan(rest, STEP, 0);
    }
  };
  const begin_host_part = () => plan(draw(consumer.step, current, CONSUMER) * host_share, HOST, 0);
  const end_step = () => {
    log('consumer', 'ends', current);
    current += 1;
    steps += 1;
    if (!counting && steps === warm_up) {
      forget();
      steps = 0;
    } else if (counting && wanted === steps) {
      return true;
    }
    if (holds) free_slot();
    arrive();
    return false;
  };
  const free_slot = () => {
    free_slots += 1;
    while ((place > 0 || free_slots > 0) && for_slot.length > 0) hand_out(for_slot.shift());
  };
  const forget = () => {
    counting = true;
    begin = now;
    arrivals = found = finished = latencies = 0;
    ring.fill(0);
    ready_since = now;
    for (const it of [...pools.map((pool) => pool.busy), ...serving, ...queued, waits]) {
      it.since = now;
      it.area = 0;
    }
    for (const it of workers) {
      it.since = now;
      it.sums = [0, 0, 0, 0];
    }
  };

  arrive();
  model.workers.forEach((_, worker) => plan(starts[worker] ?? 0, START, worker));
  while (heap.length > 0) {
    const { time, kind, id } = pop();
    if (limit !== null && counting && time > begin + limit) {
      now = begin + limit;
      break;
    }
    now = time;
    if (kind === START) idle.push(id);
    else if (kind === STAGE) end_stage(id);
    else if (kind === BATCH) end_batch(id);
    else if (kind === HOST) { vacate(0); plan(rest, STEP, 0); }
    else if (end_step()) break;
    while (idle.length > 0) ask_for_page(idle.shift());
    if (visits > MAX_VISITS) throw new Error('options: the run is too long: simulate fewer seconds or batches');
  }

  const seconds = now - begin, share = (area) => (seconds > 0 ? area / seconds : 0);
  workers.forEach((it, worker) => turn(worker, it.state));
  set_ready(ready);
  const rate = share(steps), busy = (pool) => share(until(pool.busy, now)) / pool.servers;
  return {
    seconds,
    batches: steps,
    batches_per_second: rate,
    samples_per_second: rate * model.batch,
    consumer_waits: share(until(waits, now)),
    readiness: arrivals > 0 ? found / arrivals : 1,
    ring: ring.map(share),
    stages: stages.map((_, at) => ({ serving: share(until(serving[at], now)), queued: share(until(queued[at], now)) })),
    resources: pools.slice(1).map(busy),
    cores: busy(pools[0]),
    workers: workers.map((it) => {
      const [busy, queued, page, slot] = it.sums.map(share);
      return { busy, queued, page, slot };
    }),
    latency: finished > 0 ? latencies / finished : 0,
    events,
  };
}

// Throughput bound of each part in samples per second, smallest first: pairs of a limit and its rate.
function capacity(model) {
  'use strict';
  const { stages, consumer, batch } = model;
  const per_batch = model.per_batch ?? 0, holds = consumer.holds ?? true, step = consumer.step.mean;
  const sum = (takes) => {
    let total = 0;
    for (const it of stages) if (takes(it.on, it.detached ?? false)) total += it.service.mean;
    return total;
  };
  const served = (on) => on !== 'cpu' && on !== 'wait';
  const contention = model.contention ?? null, slower = contention ? 1 / contention.speed : 1;
  const waits = sum((on, detached) => !detached && on === 'wait'), held = sum((on, detached) => !detached && on === 'cpu');
  const own = waits + held * slower;
  const tail = sum((on, detached) => detached && on !== 'cpu') + sum((on, detached) => detached && on === 'cpu') * slower;
  const per_sample = stages.some((it) => it.detached) ? 0 : per_batch / batch;
  const other = sum((on, detached) => !detached && served(on)) + per_sample;
  let workers = 0, slow = 0;
  for (const slowness of model.workers) {
    const rate = 1 / (own * slowness + other);
    workers += rate;
    slow += rate * slowness;
  }
  slow = Number.isFinite(workers) ? slow / workers : 1;
  const way = own * slow + other + tail;
  const on_core = held * slow + sum((on, detached) => detached && on === 'cpu') + (consumer.host_share ?? 0) * step / batch;
  const cores = contention ? Math.min(model.cores * contention.speed, contention.available) : model.cores;
  const limits = [['workers', workers], ['cores', cores / on_core]];
  (model.resources ?? []).forEach((it, resource) => {
    limits.push([{ resource }, it.servers / sum((on) => served(on) && on.resource === resource)]);
  });
  if ((model.pages ?? null) !== null) limits.push(['pages', model.pages / way]);
  const pace = limits.reduce((least, [, rate]) => Math.min(least, rate), Infinity);
  const late = Math.max(batch - model.workers.length, 0) / pace;
  const holds_slot = late + way - per_sample + per_batch + (holds ? step : 0);
  limits.push(['slots', model.slots * batch / holds_slot], ['consumer', batch / step]);
  return limits.filter(([, rate]) => Number.isFinite(rate)).sort((a, b) => a[1] - b[1]);
}
