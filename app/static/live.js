// The live page: says whether it is live, paused or stale, and asks for its parts again when the
// stream names a change. stream.js hears it, htmx does the requests and the morphing; this file
// decides when. A region names the events it follows in data-live; several events become one request.
"use strict";

(() => {
  const REFRESH_MS = 300; // at most this often; the last event always gets its request
  const BEAT_MS = 5000;
  const SILENCE_MS = 16000; // three beats of the server
  const connection = document.getElementById("connection");
  let heardAt = Date.now();
  const failed = new Set(); // parts that got no answer, or an error: what they show is old

  // --- live, paused or stale, in words ---

  function say(state, words) {
    if (!connection) return;
    if (connection.dataset.state === state && connection.dataset.words === words) return;
    connection.dataset.state = state;
    connection.dataset.words = words;
    connection.firstElementChild.textContent = words;
    document.body.dataset.stream = state;
  }

  // In the zone of the page's other times, wherever its reader sits.
  function timeOfDay(moment) {
    const date = new Date(moment);
    try {
      return date.toLocaleTimeString("en-GB", { timeZone: connection.dataset.zone });
    } catch {
      return date.toTimeString().slice(0, 8); // a zone that this browser does not know
    }
  }

  function stale(reason) {
    say("stale", `stale since ${timeOfDay(heardAt)}: ${reason}`);
  }

  function heard() {
    heardAt = Date.now();
    if (![...failed].some((region) => region.isConnected)) say("live", "live");
  }

  function fails({ target }) {
    if (target.dataset?.live) failed.add(target);
  }

  document.addEventListener("htmx:error", (event) => {
    fails(event);
    stale("the cockpit does not answer; trying again");
  });
  document.addEventListener("htmx:response:error", (event) => {
    fails(event);
    stale(`the cockpit answered with an error (${event.detail.ctx.response.status}); its log says why`);
  });

  // --- the stream: one for all tabs (stream.js) ---

  const REFUSED = "the cockpit does not take this stream (too many pages are open, or its log says why)";
  const wanted = new URL(connection ? connection.dataset.stream : "/", location.href).searchParams;
  const pageJob = wanted.has("job") ? Number(wanted.get("job")) : null;
  let seen = wanted.has("after") ? Number(wanted.get("after")) : null; // what this page shows
  let wasLive = false;

  function listen(message) {
    if (document.hidden) return; // this tab rests; what was on its way comes again
    if (message.topic) heardEvent(message);
    else heardState(message);
  }

  function heardState({ state, id }) {
    if (state === "lost") stale("the cockpit does not answer; trying again");
    else if (state === "refused") stale(`${REFUSED}; trying again`);
    else if (state === "live") {
      // The stream is further than this page; or it was away, and with it perhaps an answer.
      const behind = seen !== null && id !== null && id > seen;
      if (behind || (wasLive && connection.dataset.state === "stale")) refreshAll("resync");
      if (behind) seen = id;
      wasLive = true;
      heard();
    }
  }

  function heardEvent({ topic, id, job }) {
    heard();
    // The stream begins with a beat, and this page is as young.
    if (topic === "beat" && performance.now() < BEAT_MS) return;
    if (topic !== "resync" && id !== null && seen !== null && id <= seen) return; // it is shown
    if (id !== null) seen = id;
    refreshAll(topic, job);
    for (const region of failed) {
      if (topic === "beat" && !region.dataset.live.includes(topic)) refresh(region);
    }
  }

  if (connection) {
    const stream = window.nightlaneStream(listen);
    const watch = () => {
      if (!document.hidden) stream.watch(seen);
    };
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) {
        stream.rest();
        say("paused", "paused: this tab was hidden");
      } else {
        heardAt = Date.now();
        say("connecting", "catching up");
        watch();
      }
    });
    addEventListener("pagehide", () => stream.rest());
    addEventListener("pageshow", (event) => {
      if (event.persisted) watch();
    });
    setInterval(() => {
      const quiet = Date.now() - heardAt > SILENCE_MS;
      if (!quiet || document.hidden || connection.dataset.state !== "live") return;
      stale("nothing heard; trying again");
      stream.again();
    }, 1000);
    watch();
  }

  // --- parts that follow the stream ---

  function refresh(region) {
    if (region.dataset.waits) {
      region.dataset.again = "1";
      return;
    }
    region.dataset.waits = "1";
    // A slow answer is waited for: a busy machine gets fewer questions, not more.
    // Its own request is answered, or another one for the same place that took its turn.
    const over = ({ target, detail }) => {
      if (target === region || detail.ctx.target === region) next();
    };
    let answered = false;
    const next = () => {
      if (answered) return;
      answered = true;
      document.removeEventListener("htmx:finally:request", over);
      setTimeout(() => {
        delete region.dataset.waits;
        if (!region.dataset.again) return;
        delete region.dataset.again;
        refresh(region);
      }, REFRESH_MS);
    };
    document.addEventListener("htmx:finally:request", over);
    setTimeout(next, SILENCE_MS);
    htmx.trigger(region, "refresh", {}, false);
  }

  // A page of one job is not drawn again for another one's step.
  function refreshAll(topic, job = null) {
    const others = topic === "job" && pageJob !== null && job !== pageJob;
    for (const region of document.querySelectorAll(`[data-live~="${topic}"]`)) {
      if (!others || region.id === "strip") refresh(region);
    }
    if (!others && (topic === "job" || topic === "resync")) window.nightlaneCharts?.refresh();
  }

  // The log stays at its end, unless its reader has scrolled up.
  let followsLog = true;
  function keepLogEnd() {
    const log = document.getElementById("log");
    if (log && followsLog) log.scrollTop = log.scrollHeight;
  }
  document.addEventListener("scroll", (event) => {
    const log = event.target;
    if (log.id === "log") followsLog = log.scrollTop + log.clientHeight > log.scrollHeight - 8;
  }, true);

  document.addEventListener("htmx:after:swap", ({ target, detail }) => {
    // An answer that is an error is "swapped" too: nothing is put in its place.
    if (detail.ctx.response.status < 400 && failed.delete(target)) heard();
    window.nightlaneCharts?.mount();
    keepLogEnd();
    if (target.id === "strip") showIcon();
  });
  keepLogEnd();

  // The tab's icon says whether something runs, or needs a person.
  function showIcon() {
    const told = document.querySelector("#strip [data-icon]")?.dataset.icon;
    const icon = document.querySelector("link[rel=icon]");
    if (told && icon.getAttribute("href") !== told) icon.href = told;
  }

  // --- heartbeat ages and time left tick between two answers of the server ---

  const SPANS = [
    [86400, "d", 3600, "h"],
    [3600, "h", 60, "min"],
    [60, "min", 1, "s"],
  ];

  // The two largest units, as the server says it.
  function duration(seconds) {
    const whole = Math.max(0, Math.round(seconds));
    const span = SPANS.find(([size]) => whole >= size);
    if (!span) return `${whole} s`;
    const [size, name, below, belowName] = span;
    const rest = Math.floor((whole % size) / below);
    return `${Math.floor(whole / size)} ${name}${rest ? ` ${rest} ${belowName}` : ""}`;
  }

  setInterval(() => {
    for (const pulse of document.querySelectorAll("[data-heartbeat]")) {
      const age = Date.now() / 1000 - Number(pulse.dataset.heartbeat);
      const fresh = age < Number(pulse.dataset.lease);
      pulse.dataset.state = fresh ? "fresh" : "stale";
      pulse.textContent = fresh
        ? `fresh: heartbeat ${duration(age)} ago`
        : `stale: no heartbeat for ${duration(age)}; the next drain takes the job over`;
    }
    // What is true only until a moment is asked for again then; no event tells that it has come.
    for (const told of document.querySelectorAll("[data-until]")) {
      const until = told.dataset.until;
      const region = told.closest("[data-live]");
      if (region.dataset.asked === until || Date.now() / 1000 < Number(until) + 0.5) continue;
      region.dataset.asked = until;
      refresh(region);
    }
    for (const left of document.querySelectorAll("[data-done-at]")) {
      const seconds = Number(left.dataset.doneAt) - Date.now() / 1000;
      const apart = Math.abs(seconds);
      const told = duration(apart < 60 ? apart : Math.round(apart / 60) * 60);
      left.textContent = seconds < 0 ? `overdue by ${told}` : `about ${told} left`;
    }
  }, 1000);
})();
