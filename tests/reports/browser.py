"""A page in a real browser, for tests of what its script and its style do."""

import base64
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WATCH = """
window.problems = [];
addEventListener("error", (event) => problems.push(event.message));
addEventListener("unhandledrejection", (event) => problems.push(String(event.reason)));
addEventListener("securitypolicyviolation", (event) => problems.push(event.violatedDirective));
"""
ASK = """
(async () => {
  const answer = await (async () => { %s })();
  const told = JSON.stringify({ answer, problems });
  document.body.dataset.probe = encodeURIComponent(told);
})();
"""


PROBED = """
new Promise((done) => {
  const look = () => {
    const told = document.body?.dataset.probe;
    told === undefined ? setTimeout(look, 5) : done(told);
  };
  look();
})
"""


class Browser:
    """A browser that opens one page after another, each as in a new profile.

    To start one takes a second of CPU time. It speaks the DevTools protocol over two pipes.
    """

    def __init__(self, program: str, folder: Path) -> None:
        self.log = folder / "browser.log"
        theirs, self._write = os.pipe()
        self._read, answers = os.pipe()
        with self.log.open("w", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                ["bash", "-c", f'exec "$0" "$@" 3<&{theirs} 4>&{answers}', program, "--headless",
                 "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
                 f"--user-data-dir={folder}/profile", "about:blank"],
                pass_fds=(theirs, answers), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        os.close(theirs)
        os.close(answers)
        self._number, self._unread = 0, b""

    def close(self) -> None:
        os.close(self._write)  # which ends it
        self._process.wait()
        os.close(self._read)

    def call(self, method: str, session: str | None = None, **params: Any) -> Any:
        """Return the answer to a command."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        message |= {"sessionId": session} if session else {}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (told := self._next()).get("id") != self._number:
            pass
        assert "error" not in told, told
        return told["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            found = os.read(self._read, 1 << 20)
            assert found, self.log.read_text(encoding="utf-8")[-500:]
            self._unread += found
        message, _, self._unread = self._unread.partition(b"\0")
        return json.loads(message)  # type: ignore[no-any-return]

    def ask(self, url: str, *, dark: bool, size: tuple[int, int]) -> str:
        """Open a page and return what its probe tells."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)
        session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        session = session["sessionId"]
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", session, features=[scheme])
        self.call("Emulation.setDeviceMetricsOverride", session, width=size[0], height=size[1],
                  deviceScaleFactor=1, mobile=False)  # fmt: skip
        self.call("Page.enable", session)
        self.call("Page.navigate", session, url=url)
        while self._next().get("method") != "Page.loadEventFired":
            pass
        told = self.call("Runtime.evaluate", session, expression=PROBED, awaitPromise=True)
        self.call("Target.disposeBrowserContext", browserContextId=context)
        return str(told["result"]["value"])


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """The browser of all tests of this worker."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip("no Chromium on this machine")
    started = Browser(program, tmp_path_factory.mktemp("browser"))
    yield started
    started.close()


@pytest.fixture
def in_browser(browser: Browser, tmp_path: Path) -> Callable[..., Any]:
    """Open a page in a real browser: `in_browser(html, script)` is what the script returns.

    The test fails where the page raises an error or asks for something from elsewhere.
    """

    def ask(
        html: str, script: str, *, dark: bool = False, size: tuple[int, int] = (800, 600)
    ) -> Any:
        scripts = (WATCH, ASK % script)
        sums = (hashlib.sha256(text.encode()).digest() for text in scripts)
        allowed = " ".join(f"'sha256-{base64.b64encode(one).decode()}'" for one in sums)
        html = html.replace("script-src ", f"script-src {allowed} ", 1)
        html = html.replace("<title>", f"<script>{scripts[0]}</script><title>", 1)
        html = html.replace("</body>", f"<script>{scripts[1]}</script></body>", 1)
        path = tmp_path / "page.html"
        path.write_text(html, encoding="utf-8")
        told = json.loads(unquote(browser.ask(path.as_uri(), dark=dark, size=size)))
        assert told["problems"] == []
        return told["answer"]

    return ask
