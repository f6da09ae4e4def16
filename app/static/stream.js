// The one live stream of this browser. As a shared worker it holds a single connection for every
// open tab (a browser gives one host six, and eight tabs are open). Where a browser has no shared
// workers the pages take turns: one of them holds the connection and tells the others what it hears.
// Knows no page: it hands on what it hears.
"use strict";

(() => {
  const TOPICS = ["job", "board", "lane", "beat", "resync"];
  const SILENCE_MS = 16000; // three beats of the server: the connection is dead, whatever it says
  const FIRST_RETRY_MS = 500;
  const LAST_RETRY_MS = 4000;

  class Stream {
    constructor() {
      this.listeners = new Set();
      this.source = null;
      this.state = "connecting";
      this.id = null; // the newest change that was heard
      this.failures = 0;
      this.heardAt = 0;
      this.retry = null;
      setInterval(() => this.look(), 1000);
    }

    // `after`: the change that the listener's page shows; null where it does not know.
    watch(listener, after) {
      this.listeners.add(listener);
      if (this.source || this.retry) {
        listener({ state: this.state, id: this.id });
        return;
      }
      if (after !== null) this.id = after;
      this.open();
    }

    rest(listener) {
      this.listeners.delete(listener);
      if (!this.listeners.size) this.close();
    }

    open() {
      this.retry = null;
      this.heardAt = Date.now();
      const from = this.id === null ? "" : `?after=${this.id}`;
      const source = new EventSource(`/api/v1/stream${from}`);
      this.source = source;
      source.onopen = () => {
        this.failures = 0;
        this.tell("live");
      };
      source.onerror = () => this.again(source.readyState === EventSource.CLOSED ? "refused" : "lost");
      for (const topic of TOPICS) source.addEventListener(topic, (event) => this.heard(topic, event));
    }

    close() {
      if (this.source) this.source.close();
      clearTimeout(this.retry);
      this.source = this.retry = null;
      this.state = "connecting";
    }

    again(state) {
      this.close();
      this.tell(state);
      const wait = Math.min(FIRST_RETRY_MS * 2 ** this.failures++, LAST_RETRY_MS);
      this.retry = setTimeout(() => this.open(), wait * (0.7 + 0.6 * Math.random()));
    }

    look() {
      if (this.source && Date.now() - this.heardAt > SILENCE_MS) this.again("lost");
    }

    heard(topic, event) {
      this.heardAt = Date.now();
      const id = event.lastEventId === "" ? null : Number(event.lastEventId);
      // A beat bears no id, and the browser repeats the one before.
      if (topic !== "beat" && id !== null) this.id = id;
      this.send({ topic, id: topic === "beat" ? null : id, job: JSON.parse(event.data).job ?? null });
    }

    tell(state) {
      this.state = state;
      this.send({ state, id: this.id });
    }

    send(message) {
      for (const listener of [...this.listeners]) listener(message);
    }
  }

  // Tabs and their worker say no goodbye when they crash. Each holds a lock for as long as it lives, and
  // tells its name; who stands in line for it gets it when the other one is gone. Never answers where
  // a browser has no locks.
  function heldForLife(name) {
    return new Promise((told) => {
      const life = `${name}-${crypto.randomUUID?.()}`;
      navigator.locks?.request(life, () => {
        told(life);
        return new Promise(() => {});
      });
    });
  }

  if (typeof SharedWorkerGlobalScope !== "undefined" && self instanceof SharedWorkerGlobalScope) {
    const stream = new Stream();
    const held = heldForLife("nightlane-stream");
    self.onconnect = (connected) => {
      const port = connected.ports[0];
      const listener = (message) => port.postMessage(message);
      held.then((life) => port.postMessage({ life }));
      port.onmessage = ({ data }) => {
        if (data.life) navigator.locks.request(data.life, () => stream.rest(listener));
        else if (data.watch) stream.watch(listener, data.after);
        else stream.rest(listener);
      };
    };
    return;
  }

  // Without a shared worker: whoever has the lock holds the connection; the next in line gets it when
  // that page rests, is closed or crashes, and goes on from the change that it heard last.
  function amongPages(listener) {
    const stream = new Stream();
    const channel = new BroadcastChannel("nightlane-stream");
    let shown; // as below
    let leading = false;
    let turn = null; // to leave the line, or to let go
    const hear = (message) => {
      if (shown === undefined) return;
      if (message.id !== null) shown = message.id;
      listener(message);
    };
    const relay = (message) => {
      hear(message);
      channel.postMessage(message);
    };
    channel.onmessage = ({ data }) => {
      if (!data.ask) hear(data);
      else if (leading) channel.postMessage({ state: stream.state, id: stream.id });
    };
    const lead = (mine) => {
      leading = true;
      stream.watch(relay, shown);
      return new Promise((letGo) => mine.signal.addEventListener("abort", letGo)).finally(() => {
        leading = false;
        stream.rest(relay);
      });
    };
    return {
      watch: (after) => {
        shown = after;
        if (turn) return;
        const mine = (turn = new AbortController());
        navigator.locks
          .request("nightlane-stream-turn", { signal: mine.signal }, () => lead(mine))
          .catch(() => {}); // it left the line
        channel.postMessage({ ask: true });
      },
      rest: () => {
        shown = undefined;
        turn?.abort();
        turn = null;
      },
      again: () => channel.postMessage({ ask: true }),
    };
  }

  // In a page: the same verbs, whoever holds the connection.
  const address = document.currentScript.src;
  window.nightlaneStream = (listener) => {
    if (typeof SharedWorker === "undefined") {
      if (navigator.locks && typeof BroadcastChannel !== "undefined") return amongPages(listener);
      const stream = new Stream();
      return { watch: (after) => stream.watch(listener, after), rest: () => stream.rest(listener), again: () => {} };
    }
    const held = heldForLife("nightlane-tab");
    let port = null;
    let shown; // the newest change that this page knows of, while it follows the stream
    const begin = () => {
      const mine = ({ port } = new SharedWorker(address, "nightlane")).port;
      port.onmessage = ({ data }) => {
        if (data.life) navigator.locks.request(data.life, () => mine === port && again());
        else hear(data);
      };
      held.then((life) => mine.postMessage({ life }));
    };
    const hear = (message) => {
      if (shown !== undefined && message.id !== null) shown = message.id;
      listener(message);
    };
    const follow = () => port.postMessage({ watch: true, after: shown });
    // The worker lives in the process of the tab that began it, and dies with it when that crashes.
    const again = () => {
      port.postMessage({ watch: false });
      begin();
      if (shown !== undefined) follow();
    };
    begin();
    return {
      watch: (after) => {
        shown = after;
        follow();
      },
      rest: () => {
        shown = undefined;
        port.postMessage({ watch: false });
      },
      again,
    };
  };
})();
