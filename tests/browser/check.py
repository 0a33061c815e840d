"""Checks in a real browser, without a network, the HTML pages that show reports. Usage: check.py FOLDER

FOLDER has the pages that `write_pages_for_the_browser` in tests/insight/html.rs and explain_ranks.rs writes.
Screenshots of the pages are saved beside them.
"""

import pathlib
import sys
import tempfile
import time

from browser import Browser, Page, find

# JavaScript that lists texts and chart colours with too little contrast (WCAG 2.2, 1.4.3 and 1.4.11).
CONTRASTS = """(() => {
  const numbers = (color) => { const [r, g, b, a] = color.match(/[\\d.]+/g).map(Number); return [r, g, b, a ?? 1]; };
  const light = (color) => {
    const [r, g, b] = color.map((it) => { it /= 255; return it <= 0.04045 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => { const [x, y] = [light(a), light(b)]; return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05); };
  const root = numbers(getComputedStyle(document.body).backgroundColor);
  const behind = (it) => {
    for (; it; it = it.parentElement) {
      const color = numbers(getComputedStyle(it).backgroundColor);
      if (color[3] === 1) return color;
    }
    return root;
  };
  const low = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let texts = 0;
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const it = node.parentElement;
    if (!node.data.trim() || !it.checkVisibility() || ['SCRIPT', 'NOSCRIPT', 'STYLE'].includes(it.tagName)) continue;
    texts += 1;
    const style = getComputedStyle(it), pixels = parseFloat(style.fontSize);
    const large = pixels >= 24 || (pixels >= 18.66 && Number(style.fontWeight) >= 700);
    const found = contrast(numbers(it.namespaceURI.endsWith('svg') ? style.fill : style.color), behind(it));
    if (found < (large ? 3 : 4.5)) low.push(`${node.data.trim().slice(0, 40)}: ${found.toFixed(2)}`);
  }
  for (const it of document.querySelectorAll('.layer, .waits, .did, .wait, .swatch, .bar > i:not(.room), #ring i')) {
    const svg = it.namespaceURI.endsWith('svg');
    const style = getComputedStyle(it), found = contrast(numbers(svg ? style.fill : style.backgroundColor), root);
    if (found < 3) low.push(`${it.getAttribute('class')}: ${found.toFixed(2)}`);
  }
  return { texts, low, back: light(root) };
})()"""

WIDE = """[...document.body.querySelectorAll('*')].filter((it) => it.getBoundingClientRect().right > innerWidth + 0.5)
  .map((it) => `${it.tagName} ${it.id} ${it.textContent.slice(0, 40)}`).slice(0, 5)"""

REPORT = "JSON.parse(document.getElementById('report').textContent)"
SHOWN = "!document.getElementById('main').hidden"
WHAT_IFS = "[...document.querySelectorAll('#what-if tbody tr')].map((it) => [...it.children].map((cell) => cell.textContent))"


def same(found, expected, what):
    assert found == expected, f"{what}: {found!r} instead of {expected!r}"


class Check:
    """Checks of the page that reports one run."""

    shown, text = SHOWN, "evidence"

    def __init__(self, browser, file):
        self.browser, self.file, self.url = browser, file, file.as_uri()

    def open(self, **how):
        page = Page(self.browser, self.url, **how)
        page.until(self.shown)
        return page

    def run(self):
        page = self.open()
        self.beginning(page)
        self.knobs(page)
        self.keys(page)
        self.quiet(page)
        self.looks()
        self.policy(page)

    def quiet(self, page):
        same(page.errors, [], "errors of the page")
        same(page.requests, [self.url], "requests")
        same(page.value("typeof window.broken"), "undefined", "a text of the report as a script")
        same(page.value("document.querySelectorAll('img, iframe, link, a, [src], [href]').length"), 0, "elements that load")

    def beginning(self, page):
        report = page.value(REPORT)
        same(page.value("document.getElementById('verdict').textContent"), report["verdict"], "the verdict")
        assert page.value("document.getElementById('verdict').getBoundingClientRect().bottom < innerHeight"), "the verdict is off screen"
        source = report["profile"]["data"]["source"]
        assert source in page.value("document.getElementById('of').textContent"), "the source is not named"
        rows = page.value(WHAT_IFS)
        same((rows[0][0], rows[0][2]), ("as measured", "the same"), "the first change")
        shown = report["images_per_second"]
        assert abs(float(rows[0][1]) / shown - 1) < 0.01, f"{rows[0]}: {shown} images/s"
        for knob in report["knobs"]:
            found = [float(row[1]) for row in rows if row[0] == knob["setting"]]
            assert found and abs(found[0] / knob["images_per_second"] - 1) < 0.02, f"{knob['setting']}: {found}"
        same(page.value("document.querySelectorAll('.knob').length"), len(report["knobs"]), "knobs")
        rows = page.value("document.querySelectorAll('#stages tbody tr').length")
        same(rows, len(report["profile"]["stages"]), "stages")
        drawn = page.value("document.querySelectorAll('#timeline .layer').length")
        assert (drawn > 0) == (len(report["profile"]["timeline"]) > 1), f"{drawn} stages in the time line"

    def click(self, page, name):
        spot = f"document.getElementById('{name}')"
        page.value(f"{spot}.scrollIntoView({{ block: 'center' }})")
        x, y = page.value(f"(() => {{ const it = {spot}.getBoundingClientRect(); return [it.x + it.width / 2, it.y + it.height / 2]; }})()")
        for kind in ("mousePressed", "mouseReleased"):
            page.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def knobs(self, page):
        for number in range(len(page.value(REPORT)["knobs"])):
            page.value(f"document.querySelectorAll('.knob button')[{number}].id = 'button'")
            self.click(page, "button")
            page.until("document.getElementById('button').textContent === 'Copied'", 5)
            page.value("document.getElementById('button').removeAttribute('id')")

    def keys(self, page):
        if not page.value("document.querySelector('#timeline svg') !== null"):
            return
        before = page.value("document.getElementById('readout').textContent")
        page.value("document.getElementById('timeline').focus()")
        page.key("ArrowRight", 39)
        after = page.value("document.getElementById('readout').textContent")
        assert after != before and any(it.isdigit() for it in after), after

    def looks(self):
        for name, how in {
            "light": {"width": 1100},
            "dark": {"width": 1100, "dark": True},
            "narrow": {"width": 400},
        }.items():
            page = self.open(**how)
            found = page.value(CONTRASTS)
            assert found["texts"] > 50, f"{name}: {found['texts']} texts"
            same(found["low"][:5], [], f"{name}: too little contrast")
            same(found["back"] < 0.5, how.get("dark", False), f"{name}: a dark page")
            same(page.value("document.documentElement.scrollWidth"), how["width"], f"{name}: the width")
            for width in range(how["width"], 399, -100):
                page.size(width, 900)
                same(page.value(WIDE), [], f"{name}, {width} wide: elements that go over the edge")
            self.quiet(page)
            page.size(how["width"], 900)
            page.size(how["width"], page.value("document.documentElement.scrollHeight"))
            page.image(self.file.with_name(f"{self.file.stem}-{name}.png"))
            if name == "dark":
                page.media(dark=True, medium="print")
                found = page.value(CONTRASTS)
                same((found["low"], found["back"]), ([], 1), "printed: too little contrast")
                page.size(how["width"], 900)
                page.media(dark=True)
                page.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
            page.call("Page.close")

    def policy(self, page):
        """Checks the content security policy: the browser refuses scripts that are added to the page, and requests of
        the page."""
        page.value("(() => { const it = document.createElement('script'); it.textContent = 'window.broken = 3'; document.body.append(it); })()")
        same(page.value("typeof window.broken"), "undefined", "another script in the page")
        same(page.value("fetch('http://127.0.0.1:9/').then(() => 'loaded', () => 'refused')"), "refused", "a request")
        assert any("Content Security Policy" in it for it in page.errors), page.errors
        page.call("Page.close")

    def without_scripts(self):
        page = Page(self.browser, "about:blank")
        page.call("Emulation.setScriptExecutionDisabled", value=True)
        page.call("Page.navigate", url=self.url)
        page.until("document.readyState === 'complete' && document.querySelector('noscript') !== null")
        assert page.value("document.querySelector('noscript').innerText.includes('" + self.text + "')"), "no text without scripts"
        page.call("Page.close")


class RanksCheck(Check):
    """Checks of the page that reports several ranks."""

    shown, text = "!document.getElementById('main').hidden && document.querySelector('#side svg') !== null", "limits"

    def run(self):
        page = self.open()
        self.beginning(page)
        self.rows(page)
        self.strip(page)
        self.quiet(page)
        self.looks()
        self.policy(page)

    def beginning(self, page):
        report = self.report = page.value(REPORT)
        same(page.value("document.getElementById('verdict').textContent"), report["verdict"], "the verdict")
        assert page.value("document.getElementById('side').getBoundingClientRect().top < innerHeight"), "the ranks are off screen"
        many = len(report["ranks"])
        self.first = report["ranks"] if many <= 24 else report["ranks"][:16]
        self.rest = report["ranks"][len(self.first):]
        assert f"{many} " in page.value("document.getElementById('of').textContent"), "the number of ranks"
        numbers = page.value("[...document.querySelectorAll('#numbers li')].map((it) => [...it.children].map((part) => part.textContent))")
        world = report["world"]
        missing = any(value == str(world - many) and str(world) in words.split() for value, words in numbers)
        same(missing, world > many, "ranks without a report")

    def rows(self, page):
        names = page.value("[...document.querySelectorAll('#side text')].map((it) => it.textContent).filter((it) => it.startsWith('rank '))")
        same(names, [f"rank {it['rank']}" for it in self.first], "ranks side by side, the slowest first")
        slow = sum(it["slow"] for it in self.first)
        for kind in ("could", "did", "wait"):
            bars = f"document.querySelectorAll('#side .{kind}"
            same(page.value(f"{bars}').length"), len(self.first), f"bars: {kind}")
            same(page.value(f"{bars}.slow').length"), slow, f"marked bars: {kind}")
        # A bar's width must be proportional to its rate. Bars far above the median are clipped and left out.
        widths = [page.value(f"[...document.querySelectorAll('#side .{kind}')].map((it) => it.getBBox().width)") for kind in ("did", "could")]
        rates = [[it[key] for it in self.first] for key in ("images_per_second", "loader_images_per_second")]
        pairs = [pair for pair in zip(sum(widths, []), sum(rates, [])) if pair[1] < 1.2 * self.report["usual_images_per_second"]]
        each = pairs[0][0] / pairs[0][1]
        assert all(abs(width - each * rate) < 1 for width, rate in pairs), pairs
        waits = page.value("[...document.querySelectorAll('#side .wait')].map((it) => it.getBBox().width)")
        frame = page.value("document.querySelector('#side .frame').getBBox().width")
        assert all(abs(width / frame - it["consumer_waits"]) < 0.01 for width, it in zip(waits, self.first)), waits
        self.table(page, "stages", self.first, ["median"])
        self.every(page, "ranks", self.first)
        if not self.rest:
            return
        for name, check in (("stages", self.table), ("ranks", self.every)):
            assert page.value(f"document.getElementById('more-{name}').checkVisibility()"), f"no line for the other {name}"
            same(page.value(f"document.querySelectorAll('#other-{name} *').length"), 0, f"other {name} before they are opened")
            page.value(f"document.querySelector('#more-{name} > summary').click()")
            page.until(f"document.querySelectorAll('#other-{name} *').length > 0", 5)
            check(page, f"other-{name}", self.rest)

    def table(self, page, name, ranks, before=()):
        heads = page.value(f"[...document.querySelectorAll('#{name} tbody th')].map((it) => it.textContent)")
        same(heads, [*before, *(f"rank {it['rank']}{', slow' if it['slow'] else ''}" for it in ranks)], f"rows of {name}")
        marked = page.value(f"[...document.querySelectorAll('#{name} td b.bad')].length")
        fewer = 0
        for key in ("workers", "cores"):
            usual = sorted(it[key] for it in self.report["ranks"])[len(self.report["ranks"]) // 2]
            fewer += sum(it[key] < usual for it in ranks)
        fewer += sum(it["slow_steps"] for it in ranks)
        same(marked, fewer + sum(len(it["deviates"]) for it in ranks), f"marked cells of {name}")

    def every(self, page, name, ranks):
        inside = page.value(f"[...document.querySelectorAll('#{name} > details')].map((it) => [it.id, it.querySelector('summary').textContent, "
                            "[...it.querySelectorAll('li')].map((li) => li.textContent)])")
        same([it[0] for it in inside], [f"rank-{it['rank']}" for it in ranks], f"ranks of {name}")
        for (_, words, evidence), rank in zip(inside, ranks):
            assert words.endswith(f": {rank['verdict']}"), words
            same(evidence, rank["evidence"], f"evidence of rank {rank['rank']}")

    def strip(self, page):
        same(page.value("document.getElementById('all').checkVisibility()"), bool(self.rest), "a strip of all ranks")
        if not self.rest:
            return
        ranks = sorted(self.report["ranks"], key=lambda it: it["rank"])
        bars = "document.querySelectorAll('#strip .did"
        same(page.value(f"{bars}').length"), len(ranks), "bars of the strip")
        same(page.value(f"{bars}.slow').length"), sum(it["slow"] for it in ranks), "marked bars of the strip")
        readout = "document.getElementById('readout').textContent"
        page.value("document.getElementById('strip').focus()")
        for rank in ranks[:2]:
            page.key("ArrowRight", 39)
            words = page.value(readout)
            name, rest = words.split(":", 1)
            same(name, f"rank {rank['rank']}{', slow' if rank['slow'] else ''}", "the rank in the readout")
            assert "images/s" in rest, words
        # The text beside the strip must describe the rank under the pointer. A click must open that rank's details.
        for at in (len(ranks) - 1, len(ranks) // 3):
            bar = f"{bars}')[{at}].getBoundingClientRect()"
            page.value("document.getElementById('strip').scrollIntoView({ block: 'center' })")
            x, y = page.value(f"[{bar}.x + {bar}.width / 2, {bar}.bottom - 1]")
            for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
                page.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="none" if kind == "mouseMoved" else "left", clickCount=1)
            words, number = page.value(readout), ranks[at]["rank"]
            assert words.startswith(f"rank {number}") and not words[len(f"rank {number}")].isdigit(), words
            assert page.value(f"document.getElementById('rank-{number}').open"), f"rank {number} is not shown"


def main():
    path = find()
    if path is None:
        sys.exit("no browser: install Debian's chromium-headless-shell, or name one in FEEDWATER_BROWSER")
    files = sorted(pathlib.Path(sys.argv[1]).resolve().glob("*.html"))
    if not files:
        sys.exit(f"no pages in {sys.argv[1]}")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = Browser(path, folder)
        try:
            print(browser.call("Browser.getVersion")["product"])
            for file in files:
                begin = time.monotonic()
                kind = RanksCheck if file.name.startswith("ranks") else Check
                check = kind(browser, file)
                check.run()
                check.without_scripts()
                print(f"{file.name}: right, {time.monotonic() - begin:.1f} s")
        finally:
            browser.close()


main()
