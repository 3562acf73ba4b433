"""A page that shows events arrive, where the cockpit is not installed."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response

HTML = """<!doctype html><html lang="en"><meta charset="utf-8"><title>kibitz</title>
<h1>kibitz</h1><p><button id="start">start a match</button> <span id="state">connecting</span></p>
<ol id="events"></ol><script type="module" src="/custom/plain.js"></script></html>"""
SCRIPT = """
const list = document.getElementById('events'), state = document.getElementById('state');
function show(event) {
  const line = document.createElement('li');
  line.textContent = event.type + ' ' + (event.payload.text || JSON.stringify(event.payload).slice(0, 200));
  list.append(line);
  while (list.children.length > 500) list.firstChild.remove();
}
function connect() {
  const socket = new WebSocket(location.origin.replace(/^http/, 'ws') + '/custom/ws');
  socket.onmessage = (message) => {
    const said = JSON.parse(message.data);
    if (said.idle) state.textContent = 'nothing runs';
    else if (said.hello) { state.textContent = said.hello.episode_id; list.replaceChildren(); }
    else if (said.events) said.events.forEach(show);
    else if (said.type) show(said);
  };
  socket.onclose = () => { state.textContent = 'away'; setTimeout(connect, 1000); };
}
document.getElementById('start').onclick = () => fetch('/custom/start_episode',
  {method: 'POST', headers: {'content-type': 'application/json'}, body: '{}'});
connect();
"""


def router() -> APIRouter:
    routes = APIRouter(include_in_schema=False)

    @routes.get("/custom")
    async def page() -> HTMLResponse:
        return HTMLResponse(HTML)

    @routes.get("/custom/plain.js")
    async def script() -> Response:
        return Response(SCRIPT, media_type="text/javascript")

    return routes
