"""A server that speaks the OpenAI protocol over real HTTP and misbehaves by model name.

`FakeServer` runs in a thread and keeps a record of requests; `python -m tests.llm.fake_server LATENCY`
runs the good model alone in a process of its own, for timing.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any

GOOD = {"act_type": 0, "oA": [1, 0, 2], "confidence": 0.7}
LINE = json.dumps(GOOD)


@dataclass
class Request:
    at: float
    headers: dict[str, str]
    body: dict[str, Any]
    number: int  # of this model's requests, from 1


@dataclass
class Plan:
    """What is sent back: a status, headers, a body; perhaps late, perhaps cut short."""

    body: bytes | str
    status: int = 200
    headers: dict[str, str] | None = None
    wait: float = 0.0
    missing: int = 0  # bytes announced and not sent
    chunked: bool = False  # in pieces, the last of which is never sent when `missing`


def completion(content: str | None, finish: str = "stop", **more: Any) -> str:
    choice = {"index": 0, "message": {"role": "assistant", "content": content, **more}, "finish_reason": finish}
    usage = {"prompt_tokens": 300, "completion_tokens": 20, "total_tokens": 320}
    return json.dumps({"object": "chat.completion", "choices": [choice], "usage": usage})


def said(content: str | None, finish: str = "stop", **more: Any) -> Callable[[Request], Plan]:
    return lambda request: Plan(completion(content, finish, **more))


def error(status: int, message: str, code: str = "", **headers: str) -> Plan:
    body = json.dumps({"error": {"message": message, "type": "x", "code": code}})
    return Plan(body, status, {name.replace("_", "-"): value for name, value in headers.items()})


def then_good(*first: Plan) -> Callable[[Request], Plan]:
    """These answers, then good ones."""
    return lambda request: first[request.number - 1] if request.number <= len(first) else Plan(completion(LINE))


def unauthorised(request: Request) -> Plan:
    """Like some servers do, it repeats the key in its complaint."""
    return error(401, f"Incorrect API key provided: {request.headers.get('authorization', '')}")


def leaky(request: Request) -> Plan:
    """Gateways with HTTP 200 for everything: the key stands in an answer, in a complaint, across where it is cut."""
    key = request.headers.get("authorization", "")
    bodies = (completion(f"{LINE} ({key})"), completion(f"Incorrect: {key}"), json.dumps({"error": "x" * 50 + key}))
    return Plan(bodies[(request.number - 1) % 3])


def echo(request: Request) -> Plan:
    """The confidence tells which question this answers."""
    number = int(request.body["messages"][-1]["content"].split()[-1])
    return Plan(completion(json.dumps({**GOOD, "confidence": number / 1000})))


def changed(**fields: Any) -> str:
    return json.dumps({**GOOD, **fields})


def obliging(request: Request) -> Plan:
    """An answer the schema of the request allows, always the same one for the same question: for any game."""
    properties = request.body["response_format"]["json_schema"]["schema"]["properties"]
    drawn = random.Random(request.body["messages"][-1]["content"])
    return Plan(completion(json.dumps({name: drawn.choice(field["enum"]) for name, field in properties.items()})))


MOODS = ("good", "illegal", "not_json", "transport")


def mood(request: Request) -> str:
    """How `moody` takes a question: always the same way."""
    return random.Random(request.body["messages"][-1]["content"] + "?").choice(MOODS)


def moody(request: Request) -> Plan:
    match mood(request):
        case "illegal":
            properties = request.body["response_format"]["json_schema"]["schema"]["properties"]
            return Plan(completion(json.dumps(dict.fromkeys(properties, 99))))
        case "not_json":
            return Plan(completion("I would rather not."))
        case "transport":
            return error(500, "oops")
        case _:
            return obliging(request)


MODELS: dict[str, Callable[[Request], Plan]] = {
    "good": said(LINE),
    "obliging": obliging,  # these two need a preset with `structure: schema`
    "moody": moody,
    "slow": lambda request: Plan(completion(LINE), wait=0.1),
    "echo": echo,
    "rate-limit-2s": then_good(error(429, "slow down", retry_after="2")),
    "rate-limit-date": lambda request: (
        error(429, "slow down", Retry_After=formatdate(time.time() + 2, usegmt=True))
        if request.number == 1
        else Plan(completion(LINE))
    ),
    "rate-limit-400s": lambda request: error(429, "come back later", retry_after="400"),
    "rate-limit-bare": then_good(error(429, "slow down"), error(429, "slow down")),
    "rate-limit-odd": then_good(error(429, "slow down", retry_after="soon")),
    "out-of-money": lambda request: error(429, "You exceeded your quota", "insufficient_quota"),
    "500-then-good": then_good(error(500, "oops"), error(503, "oops")),
    "always-500": lambda request: error(500, "oops"),
    "hang": lambda request: Plan(completion(LINE), wait=3600),
    "slow-drip": lambda request: Plan(completion(LINE + " " * 3000), chunked=True, wait=-0.2),
    "cut": lambda request: Plan(completion(LINE), missing=40),
    "cut-stream": lambda request: Plan(completion(LINE), missing=40, chunked=True),
    "cut-then-good": then_good(Plan(completion(LINE), missing=40)),
    "nothing": lambda request: Plan("", status=-1),
    "html": lambda request: Plan(
        "<html><body>Welcome to the hotel</body></html>", headers={"content-type": "text/html"}
    ),
    "broken-body": lambda request: Plan(completion(LINE)[:-30]),
    "redirect": lambda request: Plan("", 302, {"location": "http://127.0.0.1:1/elsewhere"}),
    "array-body": lambda request: Plan("[1,2]"),
    "null-body": lambda request: Plan("null"),
    "no-choices": lambda request: Plan('{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":0}}'),
    "null-choice": lambda request: Plan('{"choices":[null]}'),
    "null-content": said(None),
    "blank": said("  \n "),
    "broken-json": said('{"act_type":0,"oA":[1,0,2],"confid'),
    "no-json": said("I would propose to keep a book."),
    "prose": said(f"Let me think. I keep a book.\n{LINE}\nGood luck!"),
    "fences": said(f"```json\n{json.dumps(GOOD, indent=2)}\n```"),
    "thinking": said(f'<think>maybe {changed(act_type=3)}</think>{{"note": {LINE}}} no: {changed(act_type=1)}'),
    "repeated-key": said('{"act_type":0,"act_type":1,"oA":[1,0,2],"confidence":0.7}'),
    "boolean": said('{"act_type":true,"oA":[1,0,2],"confidence":0.7}'),
    "boolean-inside": said('{"act_type":0,"oA":[true,0,2],"confidence":0.7}'),
    "float-act": said(changed(act_type=1.0)),
    "nan": said('{"act_type":0,"oA":[1,0,2],"confidence":NaN}'),
    "extra-key": said(changed(reason="because")),
    "missing-key": said('{"act_type":0,"oA":[1,0,2]}'),
    "short-array": said(changed(oA=[1, 0])),
    "illegal-act": said(changed(act_type=2)),
    "no-such-act": said(changed(act_type=9)),
    "above-cap": said(changed(oA=[1, 5, 2])),
    "negative": said(changed(oA=[-1, 0, 2])),
    "too-sure": said(changed(confidence=1.5)),
    "length": said(LINE, "length"),
    "length-cut": said(LINE[:20], "length"),
    "length-empty": said("", "length"),
    "refusal": said(None, refusal="I cannot help with that."),
    "filtered": said("", "content_filter"),
    "401": unauthorised,
    "leaky": leaky,
    "404": lambda request: error(404, "The model does not exist"),
    "400": lambda request: error(400, "response_format is not supported"),
    "schema-broken": lambda request: error(400, "Failed to validate JSON", "json_validate_failed"),
    "schema-form": said('{"act_type":0,"oA_0":1,"oA_1":0,"oA_2":2,"confidence":0.7}'),
    "megabyte": said("x" * 500_000 + LINE + "{" * 500_000),
    "megabyte-of-prose": said("I keep {x} and " * 70_000 + LINE),
    "too-large": said("x" * 3_000_000),
    "deep": said('{"a":' * 200_000),
    "control": said("\x00\x07\x1b[31m\u202e" + LINE + "\x00\ud800"),
    "markup": said(f"<script>alert(1)</script>{LINE}<img src=x onerror=alert(1)>"),
    "markup-in-value": said(changed(act_type="<script>alert(1)</script>")),
    "huge-number": said(f'{{"act_type":{"9" * 6000},"oA":[1,0,2],"confidence":0.7}}'),
    "no-usage": lambda request: Plan('{"choices":[{"message":{"content":' + json.dumps(LINE) + "}}]}"),
    "odd-usage": lambda request: Plan(completion(LINE).replace("300", '"many"').replace("20,", "-7,")),
}


class FakeServer:
    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.counts: Counter[str] = Counter()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self.handle, "127.0.0.1", 0), self.loop
        ).result()
        self.port = self.server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"

    def of(self, model: str) -> list[Request]:
        return [request for request in self.requests if request.body.get("model") == model]

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self.loop).result(5)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(5)
        self.loop.close()

    async def _end(self) -> None:
        self.server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                request = await self.read(reader)
                plan = MODELS[request.body["model"]](request) if request.body else Plan('{"data":[]}')
                if plan.status < 0 or not await self.send(writer, plan):
                    break
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def read(self, reader: asyncio.StreamReader) -> Request:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:]) if name}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        content = json.loads(body) if body else {}
        self.counts[content.get("model", "")] += 1
        request = Request(time.monotonic(), headers, content, self.counts[content.get("model", "")])
        self.requests.append(request)
        return request

    async def send(self, writer: asyncio.StreamWriter, plan: Plan) -> bool:
        """Whether the connection may be used again."""
        body = plan.body.encode("utf-8", "surrogatepass") if isinstance(plan.body, str) else plan.body
        await asyncio.sleep(max(0.0, plan.wait))
        length = {"transfer-encoding": "chunked"} if plan.chunked else {"content-length": str(len(body))}
        headers = {"content-type": "application/json", **length, **(plan.headers or {})}
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(f"HTTP/1.1 {plan.status} X\r\n{head}\r\n".encode("latin-1"))
        if not plan.chunked:
            writer.write(body[: len(body) - plan.missing])
            await writer.drain()
            return not plan.missing
        for start in range(0, len(body) - plan.missing, 100):
            piece = body[start : min(start + 100, len(body) - plan.missing)]
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            await writer.drain()
            await asyncio.sleep(max(0.0, -plan.wait))
        if not plan.missing:
            writer.write(b"0\r\n\r\n")
        return not plan.missing


async def serve_alone(latency: float) -> None:
    """Prints its port; every question is answered after `latency` seconds."""
    body = completion(LINE).encode()
    answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
                await reader.readexactly(int(length.split(b":")[1]))
                await asyncio.sleep(latency)
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve_alone(float(sys.argv[1])))
