"""The quick start of NSQ's documentation, with our commands under NSQ's names and with free ports."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import socket

import aiohttp

from bench.ports import free_ports
from tests.harness.process import ROOT
from tests.harness.waiting import DEADLINE_S, until


async def curl(body: str, url: str) -> bytes:
    """``curl -d BODY URL``; without curl, the same request, with curl's content type of a form."""
    async with asyncio.timeout(DEADLINE_S):
        if shutil.which("curl"):
            command = ("curl", "--silent", "--show-error", "-d", body, url)
            process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
            return (await process.communicate())[0]
        form = {"Content-Type": "application/x-www-form-urlencoded", "User-Agent": "curl/8.0", "Accept": "*/*"}
        async with aiohttp.ClientSession() as session, session.post(url, data=body.encode(), headers=form) as response:
            return await response.read()


async def read(browser: aiohttp.ClientSession, url: str) -> str:
    """The body of a page that is served."""
    async with browser.get(url, raise_for_status=True) as response:
        return await response.text()


async def test_the_quick_start_of_nsqs_documentation(start_tool, tmp_path):
    """Four messages, two of them published before nsq_to_file is started, by /pub and by /put, which older editions
    have, are in its file; nsqadmin, once its link has signed us in, lists their topic; Ctrl-C ends each program."""
    lookup_tcp, lookup_http, nsqd_tcp, nsqd_http, admin_http = free_ports(5)
    data, out = tmp_path / "data", tmp_path / "x"
    data.mkdir()
    lookupd = await start_tool(
        "nsqlookupd", f"--tcp-address=127.0.0.1:{lookup_tcp}", f"--http-address=127.0.0.1:{lookup_http}"
    )
    await lookupd.logged("HTTP: listening")
    nsqd = await start_tool(
        *("nsqd", f"--lookupd-tcp-address=127.0.0.1:{lookup_tcp}", f"--data-path={data}"),
        *("--broadcast-address=127.0.0.1", f"--tcp-address=127.0.0.1:{nsqd_tcp}"),
        f"--http-address=127.0.0.1:{nsqd_http}",
    )
    await nsqd.logged("HTTP: listening")
    nsqadmin = await start_tool(
        *("nsqadmin", f"--lookupd-http-address=127.0.0.1:{lookup_http}", f"--http-address=127.0.0.1:{admin_http}"),
        env={"NSQ_HOME": str(tmp_path / "home"), "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "platform")])},
    )
    put, pub = (f"http://127.0.0.1:{nsqd_http}/{verb}?topic=test" for verb in ("put", "pub"))
    assert await curl("hello world 1", put) == b"OK"
    assert await curl("hello world 2", pub) == b"OK"
    to_file = await start_tool(
        "nsq_to_file", "--topic=test", f"--output-dir={out}", f"--lookupd-http-address=127.0.0.1:{lookup_http}"
    )
    assert await curl("hello world 3", put) == b"OK"
    assert await curl("hello world 4", pub) == b"OK"
    await until(lambda: b"".join(each.read_bytes() for each in out.glob("test.*.log")).count(b"\n") == 4, "four lines")
    (file,) = out.glob("test.*.log")
    assert sorted(file.read_text().splitlines()) == [f"hello world {number}" for number in range(1, 5)]
    assert re.fullmatch(rf"test\.{socket.gethostname().partition('.')[0]}\.\d{{4}}-\d\d-\d\d_\d\d\.log", file.name)
    link = re.search(r"http://\S+/signin/\S+", await nsqadmin.logged("sign in, once, as admin: ", within=90))[0]
    async with asyncio.timeout(DEADLINE_S), aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
        assert await read(browser, f"http://127.0.0.1:{admin_http}/ping") == "OK"
        form = re.search('name="csrfmiddlewaretoken" value="([^"]+)"', await read(browser, link))
        async with browser.post(link, data={"csrfmiddlewaretoken": form[1]}, allow_redirects=False) as signed_in:
            assert signed_in.status == 302
        topics = json.loads(await read(browser, f"http://127.0.0.1:{admin_http}/api/topics"))
    assert topics == {"topics": ["test"], "message": ""}
    for each in (nsqadmin, to_file, nsqd, lookupd):
        each.process.send_signal(signal.SIGINT)
        ended = await each.end()
        assert ended.status == 0
        assert "Traceback" not in ended.err
