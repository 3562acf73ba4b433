"""A server that speaks the OpenAI protocol over real HTTP and misbehaves by model name.

`FakeServer` runs in a thread and records requests; `python -m tests.llm.fake_server LATENCY` runs only the
good model, in its own process, for timing.
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
RETRY_DATE = 1_000_000  # seconds since the epoch, a moment in 1970


@dataclass
class Request:
    at: float
    headers: dict[str, str]
    body: dict[str, Any]
    number: int  # of this model's requests, from 1


@dataclass
class CannedResponse:
    """A response; possibly late or truncated."""

    body: bytes | str
    status: int = 200
    headers: dict[str, str] | None = None
    wait: float = 0.0
    missing: int = 0  # bytes announced but not sent
    chunked: bool = False  # with `missing`, the last chunk is never sent


def completion(content: str | None, finish: str = "stop", **more: Any) -> str:
    choice = {"index": 0, "message": {"role": "assistant", "content": content, **more}, "finish_reason": finish}
    usage = {"prompt_tokens": 300, "completion_tokens": 20, "total_tokens": 320}
    return json.dumps({"object": "chat.completion", "choices": [choice], "usage": usage})


def reply_with(content: str | None, finish: str = "stop", **more: Any) -> Callable[[Request], CannedResponse]:
    return lambda request: CannedResponse(completion(content, finish, **more))


def error(status: int, message: str, code: str = "", **headers: str) -> CannedResponse:
    body = json.dumps({"error": {"message": message, "type": "x", "code": code}})
    return CannedResponse(body, status, {name.replace("_", "-"): value for name, value in headers.items()})


def spent(response: str) -> str:
    """The response with the usage of a completion, as gateways report it beside an error."""
    return json.dumps(json.loads(response) | {"usage": json.loads(completion(""))["usage"]})


def error_object(code: int | str) -> str:
    return json.dumps({"error": {"message": "upstream failed", "code": code}, "choices": []})


def then_good(*first: CannedResponse) -> Callable[[Request], CannedResponse]:
    """These responses, then good ones."""
    return lambda request: (
        first[request.number - 1] if request.number <= len(first) else CannedResponse(completion(LINE))
    )


def unauthorised(request: Request) -> CannedResponse:
    """Echoes the key in the error, as some servers do."""
    return error(401, f"Incorrect API key provided: {request.headers.get('authorization', '')}")


def leaky(request: Request) -> CannedResponse:
    """Gateways that answer HTTP 200 to everything: the key occurs in an answer, in an error, across a cut."""
    key = request.headers.get("authorization", "")
    bodies = (completion(f"{LINE} ({key})"), completion(f"Incorrect: {key}"), json.dumps({"error": "x" * 50 + key}))
    return CannedResponse(bodies[(request.number - 1) % 3])


def echo(request: Request) -> CannedResponse:
    """The confidence contains the number of the question."""
    number = int(request.body["messages"][-1]["content"].split()[-1])
    return CannedResponse(completion(json.dumps({**GOOD, "confidence": number / 1000})))


def changed(**fields: Any) -> str:
    return json.dumps({**GOOD, **fields})


def obliging(request: Request) -> CannedResponse:
    """An answer that the request's schema allows, for any game; the same question gets the same answer."""
    properties = request.body["response_format"]["json_schema"]["schema"]["properties"]
    drawn = random.Random(request.body["messages"][-1]["content"])
    return CannedResponse(
        completion(json.dumps({name: drawn.choice(field["enum"]) for name, field in properties.items()}))
    )


def streamed(request: Request, pause: float = 0.1) -> CannedResponse:
    """The answer of `obliging`, or a fixed one without a schema, in pieces if the request asks for a stream."""
    schema = "json_schema" in request.body.get("response_format", {})
    whole = json.loads(str((obliging(request) if schema else CannedResponse(completion(LINE))).body))
    if not request.body.get("stream"):
        return CannedResponse(json.dumps(whole))
    text = whole["choices"][0]["message"]["content"]
    deltas = [{"reasoning": "Let me think. "}, *({"content": text[i : i + 9]} for i in range(0, len(text), 9))]
    events = [{"choices": [{"delta": delta, "finish_reason": None}]} for delta in deltas]
    events += [{"choices": [{"delta": {}, "finish_reason": "stop"}]}, {"choices": [], "usage": whole["usage"]}]
    body = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
    return CannedResponse(body, headers={"content-type": "text/event-stream"}, chunked=True, wait=-pause)


def streams_never(request: Request) -> CannedResponse:
    refused = error(400, "stream is not supported")
    return refused if request.body.get("stream") else CannedResponse(completion(LINE))


MOODS = ("good", "illegal", "not_json", "transport")


def mood(request: Request) -> str:
    """How `moody` treats a question; the same question gets the same treatment."""
    return random.Random(request.body["messages"][-1]["content"] + "?").choice(MOODS)


def moody(request: Request) -> CannedResponse:
    match mood(request):
        case "illegal":
            properties = request.body["response_format"]["json_schema"]["schema"]["properties"]
            return CannedResponse(completion(json.dumps(dict.fromkeys(properties, 99))))
        case "not_json":
            return CannedResponse(completion("I would rather not."))
        case "transport":
            return error(500, "oops")
        case _:
            return obliging(request)


MODELS: dict[str, Callable[[Request], CannedResponse]] = {
    "good": reply_with(LINE),
    "obliging": obliging,  # these two need `structure: schema` in the preset
    "moody": moody,
    "streamed": streamed,
    "streamed-slowly": lambda request: streamed(request, 0.6),
    "streams-never": streams_never,
    "slow": lambda request: CannedResponse(completion(LINE), wait=0.1),
    "echo": echo,
    "rate-limit-seconds": then_good(error(429, "slow down", retry_after="0.4")),
    "rate-limit-date": then_good(error(429, "slow down", Retry_After=formatdate(RETRY_DATE, usegmt=True))),
    "rate-limit-400s": lambda request: error(429, "come back later", retry_after="400"),
    "rate-limit-99999s": lambda request: error(429, "come back tomorrow", retry_after="99999"),
    "rate-limit-bare": then_good(error(429, "slow down"), error(429, "slow down")),
    "rate-limit-invalid": then_good(error(429, "slow down", retry_after="soon")),
    "out-of-money": lambda request: error(429, "You exceeded your quota", "insufficient_quota"),
    "500-then-good": then_good(error(500, "oops"), error(503, "oops")),
    "always-500": lambda request: error(500, "oops"),
    "paid-500-then-good": then_good(*[CannedResponse(spent('{"error":{"message":"oops"}}'), 500)] * 2),
    "error-object": lambda request: CannedResponse(spent(error_object("bad_model"))),
    "error-object-502": lambda request: CannedResponse(spent(error_object(502))),
    "error-object-429-then-good": then_good(CannedResponse(error_object(429), headers={"retry-after": "0.1"})),
    "error-in-choice": lambda request: CannedResponse(
        completion("").replace('"finish_reason"', '"error": {"message": "cut off", "code": 400}, "finish_reason"')
    ),
    "hang": lambda request: CannedResponse(completion(LINE), wait=3600),
    "slow-drip": lambda request: CannedResponse(completion(LINE + " " * 30_000), chunked=True, wait=-0.2),
    "cut": lambda request: CannedResponse(completion(LINE), missing=40),
    "cut-stream": lambda request: CannedResponse(completion(LINE), missing=40, chunked=True),
    "cut-then-good": then_good(CannedResponse(completion(LINE), missing=40)),
    "nothing": lambda request: CannedResponse("", status=-1),
    "html": lambda request: CannedResponse(
        "<html><body>Welcome to the hotel</body></html>", headers={"content-type": "text/html"}
    ),
    "broken-body": lambda request: CannedResponse(completion(LINE)[:-30]),
    "redirect": lambda request: CannedResponse("", 302, {"location": "http://127.0.0.1:1/elsewhere"}),
    "array-body": lambda request: CannedResponse("[1,2]"),
    "null-body": lambda request: CannedResponse("null"),
    "no-choices": lambda request: CannedResponse('{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":0}}'),
    "null-choice": lambda request: CannedResponse('{"choices":[null]}'),
    "null-content": reply_with(None),
    "blank": reply_with("  \n "),
    "broken-json": reply_with('{"act_type":0,"oA":[1,0,2],"confid'),
    "no-json": reply_with("I would propose to keep a book."),
    "prose": reply_with(f"Let me think. I keep a book.\n{LINE}\nGood luck!"),
    "fences": reply_with(f"```json\n{json.dumps(GOOD, indent=2)}\n```"),
    "thinking": reply_with(f'<think>maybe {changed(act_type=3)}</think>{{"note": {LINE}}} no: {changed(act_type=1)}'),
    "repeated-key": reply_with('{"act_type":0,"act_type":1,"oA":[1,0,2],"confidence":0.7}'),
    "boolean": reply_with('{"act_type":true,"oA":[1,0,2],"confidence":0.7}'),
    "boolean-inside": reply_with('{"act_type":0,"oA":[true,0,2],"confidence":0.7}'),
    "float-act": reply_with(changed(act_type=1.0)),
    "nan": reply_with('{"act_type":0,"oA":[1,0,2],"confidence":NaN}'),
    "extra-key": reply_with(changed(reason="because")),
    "missing-key": reply_with('{"act_type":0,"oA":[1,0,2]}'),
    "short-array": reply_with(changed(oA=[1, 0])),
    "illegal-act": reply_with(changed(act_type=2)),
    "agree-above-cap": reply_with(changed(act_type=2, oA=[99, 0, 5])),
    "no-such-act": reply_with(changed(act_type=9)),
    "above-cap": reply_with(changed(oA=[1, 5, 2])),
    "negative": reply_with(changed(oA=[-1, 0, 2])),
    "too-sure": reply_with(changed(confidence=1.5)),
    "length": reply_with(LINE, "length"),
    "length-cut": reply_with(LINE[:20], "length"),
    "length-empty": reply_with("", "length"),
    "refusal": reply_with(None, refusal="I cannot help with that."),
    "filtered": reply_with("", "content_filter"),
    "401": unauthorised,
    "leaky": leaky,
    "404": lambda request: error(404, "The model does not exist"),
    "400": lambda request: error(400, "response_format is not supported"),
    "schema-broken": lambda request: error(400, "Failed to validate JSON", "json_validate_failed"),
    "schema-form": reply_with('{"act_type":0,"oA_0":1,"oA_1":0,"oA_2":2,"confidence":0.7}'),
    "megabyte": reply_with("x" * 500_000 + LINE + "{" * 500_000),
    "megabyte-of-prose": reply_with("I keep {x} and " * 70_000 + LINE),
    "too-large": reply_with("x" * 3_000_000),
    "deep": reply_with('{"a":' * 200_000),
    "control": reply_with("\x00\x07\x1b[31m\u202e" + LINE + "\x00\ud800"),
    "markup": reply_with(f"<script>alert(1)</script>{LINE}<img src=x onerror=alert(1)>"),
    "markup-in-value": reply_with(changed(act_type="<script>alert(1)</script>")),
    "huge-number": reply_with(f'{{"act_type":{"9" * 6000},"oA":[1,0,2],"confidence":0.7}}'),
    "no-usage": lambda request: CannedResponse('{"choices":[{"message":{"content":' + json.dumps(LINE) + "}}]}"),
    "invalid-usage": lambda request: CannedResponse(completion(LINE).replace("300", '"many"').replace("20,", "-7,")),
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
        asyncio.run_coroutine_threadsafe(self._end(), self.loop).result(60)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(60)
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
                planned = MODELS[request.body["model"]](request) if request.body else CannedResponse('{"data":[]}')
                if planned.status < 0 or not await self.send(writer, planned):
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

    async def send(self, writer: asyncio.StreamWriter, planned: CannedResponse) -> bool:
        """Whether the connection can be reused."""
        body = planned.body.encode("utf-8", "surrogatepass") if isinstance(planned.body, str) else planned.body
        await asyncio.sleep(max(0.0, planned.wait))
        length = {"transfer-encoding": "chunked"} if planned.chunked else {"content-length": str(len(body))}
        headers = {"content-type": "application/json", **length, **(planned.headers or {})}
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(f"HTTP/1.1 {planned.status} X\r\n{head}\r\n".encode("latin-1"))
        if not planned.chunked:
            writer.write(body[: len(body) - planned.missing])
            await writer.drain()
            return not planned.missing
        for start in range(0, len(body) - planned.missing, 100):
            piece = body[start : min(start + 100, len(body) - planned.missing)]
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            await writer.drain()
            await asyncio.sleep(max(0.0, -planned.wait))
        if not planned.missing:
            writer.write(b"0\r\n\r\n")
        return not planned.missing


async def serve_alone(latency: float) -> None:
    """Prints its port; answers every question after `latency` seconds."""
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
