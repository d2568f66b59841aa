"""``curl`` for the documentation's commands on a machine that has none: the options that they use.

``-d``, ``--data-binary``, ``-G``, ``-X``, ``-H``, ``-o``, and ``-s``, ``-S``, ``-N`` and ``-f``, also joined as in
``-sN``; ``--retry`` and ``--retry-connrefused``. An HTTP error is always one of the command, as with
``--fail-with-body``.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from urllib.parse import quote

import httpx

from tests.harness.waiting import DEADLINE_S


def main(argv: list[str]) -> int:
    headers = {"User-Agent": "curl/8.0", "Accept": "*/*"}
    url, method, data, in_query, target, attempts = "", "", list[bytes](), False, "", 1
    words = iter(argv)
    for word in words:
        if not word.startswith("-"):
            url = word
        elif word in ("-d", "--data", "--data-binary"):
            text = next(words)
            data.append(Path(text[1:]).read_bytes() if text.startswith("@") else text.encode())
        elif word in ("-X", "--request"):
            method = next(words)
        elif word in ("-H", "--header"):
            name, _, value = next(words).partition(":")
            headers[name] = value.strip()
        elif word in ("-G", "--get"):
            in_query = True
        elif word in ("-o", "--output"):
            target = next(words)
        elif word == "--retry":
            attempts = int(next(words))
        elif word == "--retry-connrefused":
            pass
        elif not set(word[1:]) <= set("sSNf"):
            print(f"curl: option {word}: is unknown", file=sys.stderr)
            return 2
    if in_query:
        url += ("&" if "?" in url else "?") + quote(b"&".join(data).decode(), safe="=&:")
        data = []
    if data:
        headers.setdefault("Content-Type", "application/x-www-form-urlencoded")
    verb, content = method or ("POST" if data else "GET"), b"&".join(data) or None
    while True:
        attempts -= 1
        try:
            answer = httpx.request(verb, url, headers=headers, content=content, timeout=DEADLINE_S)
            break
        except httpx.HTTPError as error:
            if attempts <= 0:
                print(f"curl: (7) {error}", file=sys.stderr)
                return 7
            time.sleep(1)
    if target:
        Path(target).write_bytes(answer.content)
    else:
        sys.stdout.buffer.write(answer.content)
    if answer.is_error:
        print(f"curl: (22) The requested URL returned error: {answer.status_code}", file=sys.stderr)
        return 22
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
