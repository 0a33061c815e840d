"""Controls a headless Chromium by the DevTools protocol over a pipe. Needs only Python and the browser."""

import base64
import json
import os
import select
import shutil
import subprocess
import time

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def find():
    """Returns the path of an installed browser, or None."""
    named = os.environ.get("FEEDWATER_BROWSER")
    return named or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """A running Chromium, which `close` ends. It resolves no host names, so no page reaches the network."""

    def __init__(self, path, folder):
        to_browser, self.write = os.pipe()
        self.read, from_browser = os.pipe()
        command = [path, "--headless", "--no-sandbox", "--remote-debugging-pipe", f"--user-data-dir={folder}"]
        command += ["--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--no-first-run"]
        command += ["--host-resolver-rules=MAP * ~NOTFOUND", "--hide-scrollbars", "about:blank"]

        # Chromium reads commands from descriptor 3 and writes answers to 4. os.pipe may have returned these numbers.
        # Each end of the pipes is therefore first duplicated to a number above 4, and then to 3 or 4.
        def ends():
            inward, outward = os.dup(to_browser), os.dup(from_browser)
            while min(inward, outward) < 5:
                inward, outward = os.dup(inward), os.dup(outward)
            os.dup2(inward, 3)
            os.dup2(outward, 4)

        log = open(os.path.join(folder, "log"), "wb")
        self.process = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=ends, close_fds=False)
        log.close()
        os.close(to_browser)
        os.close(from_browser)
        self.number, self.rest, self.answers, self.events = 0, b"", {}, []

    def close(self):
        self.process.kill()
        self.process.wait()

    def call(self, method, session=None, **parameters):
        """Calls a method of the DevTools protocol and waits for the answer. Raises RuntimeError if the answer is an
        error."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        number, deadline = self.number, time.monotonic() + 60
        while number not in self.answers:
            self.pump(deadline)
        answer = self.answers.pop(number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def pump(self, deadline):
        """Reads from the browser until one more message is complete. Raises RuntimeError after `deadline`."""
        wait = deadline - time.monotonic()
        if wait <= 0 or not select.select([self.read], [], [], wait)[0]:
            raise RuntimeError("the browser does not answer")
        got = os.read(self.read, 1 << 20)
        if not got:
            raise RuntimeError("the browser has exited")
        *messages, self.rest = (self.rest + got).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self.answers[message["id"]] = message
            else:
                self.events.append(message)


class Page:
    """A page in its own browser tab. `requests` are the URLs that the page requested. `errors` are its exceptions,
    console errors and log entries."""

    def __init__(self, browser, url, width=1100, height=900, dark=False):
        self.browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)
        self.media(dark=dark)
        self.size(width, height)
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def media(self, dark=False, medium=""):
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=medium, features=[scheme])

    def value(self, expression):
        """Returns the value of a JavaScript expression. If the value is a promise, waits for its result."""
        given = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in given:
            raise RuntimeError(given["exceptionDetails"]["exception"].get("description", expression))
        return given["result"].get("value")

    def until(self, expression, seconds=60):
        deadline = time.monotonic() + seconds
        while not self.value(expression):
            if time.monotonic() > deadline:
                raise RuntimeError(f"not true within {seconds} s: {expression}")
            time.sleep(0.02)

    def key(self, key, code):
        """Presses and releases a key."""
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def image(self, path):
        """Writes a PNG of the whole page."""
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def events(self, method):
        return [it["params"] for it in self.browser.events if it["method"] == method and it.get("sessionId") == self.session]

    @property
    def requests(self):
        return [it["request"]["url"] for it in self.events("Network.requestWillBeSent")]

    @property
    def errors(self):
        thrown = [it["exceptionDetails"].get("exception", {}).get("description", str(it)) for it in self.events("Runtime.exceptionThrown")]
        said = [str(it["args"]) for it in self.events("Runtime.consoleAPICalled") if it["type"] in ("error", "warning", "assert")]
        return thrown + said + [it["entry"]["text"] for it in self.events("Log.entryAdded")]


if __name__ == "__main__":
    print(find() or "no browser is installed")
    raise SystemExit(find() is None)
