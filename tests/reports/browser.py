"""A page in a real browser, for tests of what its script and its style do."""

import base64
import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Callable
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


@pytest.fixture
def in_browser(tmp_path: Path) -> Callable[..., Any]:
    """Open a page in a real browser: `in_browser(html, script)` is what the script returns.

    The test fails where the page raises an error or asks for something from elsewhere.
    """
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip("no Chromium on this machine")

    def ask(html: str, script: str, *options: str) -> Any:
        scripts = (WATCH, ASK % script)
        sums = (hashlib.sha256(text.encode()).digest() for text in scripts)
        allowed = " ".join(f"'sha256-{base64.b64encode(one).decode()}'" for one in sums)
        html = html.replace("script-src ", f"script-src {allowed} ", 1)
        html = html.replace("<title>", f"<script>{scripts[0]}</script><title>", 1)
        html = html.replace("</body>", f"<script>{scripts[1]}</script></body>", 1)
        path = tmp_path / "page.html"
        path.write_text(html, encoding="utf-8")
        done = subprocess.run(
            [browser, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
             "--virtual-time-budget=4000", f"--user-data-dir={tmp_path}/profile", *options,
             path.as_uri()],
            capture_output=True, text=True, timeout=300, check=True,
        )  # fmt: skip
        found = re.search(r'data-probe="([^"]+)"', done.stdout)
        assert found, done.stderr[-500:]
        told = json.loads(unquote(found[1]))
        assert told["problems"] == []
        return told["answer"]

    return ask
