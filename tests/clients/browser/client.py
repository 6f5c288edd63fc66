"""A page in Chromium that sends Open WebUI's requests to the server at $SPECDEC_URL.

The page comes from another port, so that every request crosses origins.
"""

import functools
import http.server
import json
import os
import threading
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

FOLDER = Path(__file__).parent
URL, PORT = os.environ["SPECDEC_URL"], int(os.environ["PAGE_PORT"])
REQUESTS = json.loads((FOLDER.parent / "open_webui" / "requests.json").read_text())


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def sent(page: Page, request: dict, key: str = "secret") -> dict:
    """The page's request: status, text, and in how many parts the text came."""
    url = URL.removesuffix("/v1") + request["path"]
    return page.evaluate("([url, request, key]) => send(url, request, key)", [url, request, key])


def text_of(answer: str) -> str:
    """The text of all chunks of a stream."""
    events = [line.removeprefix("data: ") for line in answer.splitlines() if line[:5] == "data:"]
    assert events[-1] == "[DONE]"
    choices = [choice for event in events[:-1] for choice in json.loads(event)["choices"]]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


def requests(page: Page) -> None:
    for request in REQUESTS:
        answer = sent(page, request)
        assert answer["status"] == request["status"], answer


def stream(page: Page) -> None:
    """An answer of seconds arrives in parts; the page may read a short one as a whole."""
    (counting,) = [r for r in REQUESTS if "Count to five." in json.dumps(r["body"])]
    answer = sent(page, counting)
    assert text_of(answer["text"]) == "1, 2, 3, 4, 5 🙂"
    messages = [{"role": "user", "content": "Count to one hundred."}]
    answer = sent(page, counting | {"body": counting["body"] | {"messages": messages}})
    assert text_of(answer["text"]) == ", ".join(map(str, range(1, 101)))
    assert answer["parts"] > 1, answer["parts"]


def errors(page: Page) -> None:
    """The page can read an error, as its headers allow that as well."""
    answer = sent(page, REQUESTS[0], key="wrong")
    assert answer["status"] == 401, answer
    assert json.loads(answer["text"])["error"]["code"] == "invalid_api_key"


def other_origin(page: Page) -> None:
    """localhost is another origin than 127.0.0.1, which the server was not told of."""
    page.goto(f"http://localhost:{PORT}/page.html")
    answer = sent(page, REQUESTS[0])
    assert answer == {"blocked": "Failed to fetch"}, answer


handler = functools.partial(Quiet, directory=str(FOLDER))
server = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
with sync_playwright() as playwright:
    browser = playwright.chromium.launch(
        executable_path=os.environ["CHROMIUM"], args=["--no-sandbox"]
    )
    opened = browser.new_page()
    opened.goto(f"http://127.0.0.1:{PORT}/page.html")
    for case in (requests, stream, errors, other_origin):
        case(opened)
        print("ok", case.__name__)
    browser.close()
