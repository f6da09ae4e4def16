// The one live stream of this browser. As a shared worker it holds a single connection for every
// open tab (a browser gives one host six, and eight tabs are open); where a browser has no shared
// workers each page runs this same file for itself. Knows no page: it hands on what it hears.
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

  if (typeof SharedWorkerGlobalScope !== "undefined" && self instanceof SharedWorkerGlobalScope) {
    const stream = new Stream();
    self.onconnect = (connected) => {
      const port = connected.ports[0];
      const listener = (message) => port.postMessage(message);
      port.onmessage = ({ data }) => {
        if (data.life) navigator.locks.request(data.life, () => stream.rest(listener));
        else if (data.watch) stream.watch(listener, data.after);
        else stream.rest(listener);
      };
    };
    return;
  }

  // In a page: the same two verbs, whoever holds the connection.
  const address = document.currentScript.src;
  window.nightlaneStream = (listener) => {
    if (typeof SharedWorker === "undefined") {
      const stream = new Stream();
      return { watch: (after) => stream.watch(listener, after), rest: () => stream.rest(listener) };
    }
    const { port } = new SharedWorker(address, "nightlane");
    port.onmessage = ({ data }) => listener(data);
    // A tab that crashes says no goodbye. It holds a lock for as long as it lives, and the worker
    // stands in line for that lock: when it gets it, the tab is gone.
    if (navigator.locks) {
      const life = `nightlane-tab-${crypto.randomUUID()}`;
      navigator.locks.request(life, () => {
        port.postMessage({ life });
        return new Promise(() => {});
      });
    }
    return {
      watch: (after) => port.postMessage({ watch: true, after }),
      rest: () => port.postMessage({ watch: false }),
    };
  };
})();
