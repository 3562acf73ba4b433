// Receives the server's events over a WebSocket, or as server-sent events where sockets do not pass. Reconnects by
// itself and resumes after the last event the page has.
import { signed } from "../dom.js";

const FIRST_RETRY_MS = 250;
const MAX_RETRY_MS = 4000;
const SOCKET_TRIES = 3; // after that sockets and server-sent events take turns
const ACK_MS = 400; // between two acknowledgements on average, unless many events are waiting for one
const ACK_EVENTS = 200;

export class Feed {
  // `since()` returns the last seq that the page has; `take(events)` returns false if events are missing;
  // `report(state, delay)` is called whenever the connection changes.
  constructor({ id, token, since, take, report }) {
    Object.assign(this, { id, token, since, take, report, tries: 0, closed: false, finished: false, any: !id, delay: null, caught: -1, acked: -1 });
    this.open();
  }

  address(scheme) {
    // a page without an episode in its address moves on to the next episode
    if (this.any && this.finished) this.id = null;
    const query = new URLSearchParams({ since: this.id ? this.since() : -1 });
    if (this.id) query.set("episode_id", this.id);
    if (this.token) query.set("seat_token", this.token);
    return signed(`${scheme}//${location.host}/custom/ws?${query}`);
  }

  open() {
    if (this.closed) return;
    this.say(this.tries ? "reconnecting" : "connecting");
    if (this.tries >= SOCKET_TRIES && this.tries % 2) this.openEvents();
    else this.openSocket();
  }

  openSocket() {
    const socket = new WebSocket(this.address(location.protocol === "https:" ? "wss:" : "ws:"));
    this.socket = socket;
    socket.onmessage = ({ data }) => this.message(JSON.parse(data), "live");
    socket.onclose = () => this.lost(socket);
  }

  openEvents() {
    const source = new EventSource(this.address(location.protocol));
    this.socket = source;
    source.onmessage = ({ data }) => this.message(JSON.parse(data), "polling");
    source.onerror = () => { source.close(); this.lost(source); };
  }

  // `caught` is the last event that existed when the connection opened: later ones are news
  message(message, how) {
    this.tries = 0;
    if (message.hello) {
      this.caught = message.hello.seq ?? -1;
      if (this.any) this.id = message.hello.episode_id;
      this.finished = false;
    } else if (message.idle) return this.say("idle");
    else if (message.resync !== undefined) return this.again();
    const events = message.events || (message.type && message.payload ? [message] : []);
    if (!events.length) return this.say(how);
    const mine = events.filter((event) => event.episode_id === this.id);
    const last = mine[mine.length - 1];
    if (last?.seq > this.caught) this.delay = Math.max(0, Date.now() - last.ts * 1000);
    if (!this.take(mine)) return this.again();
    if (last && /^episode\.(ended|failed)$/.test(last.type)) this.finished = true;
    if (last) this.ack(last.seq);
    return this.say(how);
  }

  // Acknowledges what has arrived, so that the server knows how far behind this page is. All pages receive an event at
  // the same time; the random wait keeps their acknowledgements apart.
  ack(seq) {
    this.acking ||= setTimeout(() => {
      this.acking = 0;
      if (this.socket?.send && this.socket.readyState === 1) this.socket.send(JSON.stringify({ ack: this.since() }));
    }, seq - this.acked > ACK_EVENTS ? 0 : ACK_MS * (0.5 + Math.random()));
    this.acked = seq;
  }

  again() {
    this.drop();
    this.open();
  }

  lost(socket) {
    if (socket !== this.socket || this.closed) return;
    if (this.finished && !this.any) {
      this.closed = true;
      this.say("replay");
      return;
    }
    this.tries += 1;
    const wait = Math.min(MAX_RETRY_MS, FIRST_RETRY_MS * 2 ** (this.tries - 1)) * (0.75 + Math.random() / 2);
    this.say("reconnecting");
    this.timer = setTimeout(() => this.open(), wait);
  }

  say(state) {
    this.state = state;
    this.report(state, this.delay);
  }

  drop() {
    const { socket } = this;
    this.socket = null;
    clearTimeout(this.timer);
    socket?.close();
  }

  close() {
    this.closed = true;
    this.drop();
  }
}
