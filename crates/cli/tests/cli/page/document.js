// As much of a browser's document as the page of a report uses. Arguments: the page's JSON files and its script, which is run; the
// texts of the page are printed as JSON.
const { readFileSync } = require('fs');
const [, , report, causes, script] = process.argv;

class Element {
  constructor() { Object.assign(this, { children: [], attributes: {}, style: {}, clientWidth: 800 }); }
  append(...children) { this.children.push(...children.flat().filter((it) => it !== null && it !== undefined)); }
  replaceChildren(...children) { this.children = []; this.append(...children); }
  setAttribute(name, value) {
    this.attributes[name] = String(value);
    if (name === 'id') ids[value] = this;
  }
  addEventListener() {}
  get textContent() { return this.children.map((it) => (it instanceof Element ? it.textContent : String(it))).join(''); }
  set textContent(text) { this.children = [text]; }
}

const ids = {};
const byId = (id) => (ids[id] ??= new Element());
byId('report').textContent = readFileSync(report, 'utf8');
byId('causes').textContent = readFileSync(causes, 'utf8');
globalThis.document = { getElementById: byId, createElement: () => new Element(), createElementNS: () => new Element() };
globalThis.ResizeObserver = class { observe() {} };
(0, eval)(readFileSync(script, 'utf8'));

// The page simulates a moment after the sliders have moved.
setTimeout(() => {
  const rows = (element) => element.children.at(-1)?.children.map((row) => row.children.map((it) => it.textContent)) ?? [];
  const texts = Object.fromEntries(Object.entries(ids).map(([id, it]) => [id, it.textContent]));
  const numbers = ids.numbers.children.map((it) => it.children.map((part) => part.textContent));
  const axis = ids.timeline.children[0].children.filter((it) => it.attributes?.['text-anchor'] === 'end').map((it) => it.textContent);
  console.log(JSON.stringify({ texts, numbers, stages: rows(ids.stages), evidence: ids.evidence.children.map((it) => it.textContent), axis }));
}, 1000);
