// The live page: says whether it is live, paused or stale, and asks for its parts again when the
// stream names a change. htmx does the stream, the requests and the morphing; this file decides
// when. A region names the events it follows in data-live; several events become one request.
"use strict";

(() => {
  const REFRESH_MS = 400; // at most this often; the last event always gets its request
  const SILENCE_MS = 16000; // three beats of the server
  const connection = document.getElementById("connection");
  let heardAt = Date.now();
  let partFailed = false;

  // --- live, paused or stale, in words ---

  function say(state, words) {
    if (!connection) return;
    if (connection.dataset.state === state && connection.dataset.words === words) return;
    connection.dataset.state = state;
    connection.dataset.words = words;
    connection.firstElementChild.textContent = words;
    document.body.dataset.stream = state;
  }

  function timeOfDay(moment) {
    return new Date(moment).toTimeString().slice(0, 8);
  }

  function stale(reason) {
    say("stale", `stale since ${timeOfDay(heardAt)}: ${reason}`);
  }

  function heard() {
    heardAt = Date.now();
    if (!partFailed) say("live", "live");
  }

  if (connection) {
    connection.addEventListener("htmx:sse:after:connection", (event) => {
      // A stream that was away may have missed the answer to its last request.
      if (connection.dataset.state === "stale" && event.detail.connection.attempt > 0) refreshAll("resync");
      heard();
    });
    connection.addEventListener("htmx:sse:error", () => stale("the cockpit does not answer; trying again"));
    document.addEventListener("htmx:error", () => stale("the cockpit does not answer; reload to try again"));
    document.addEventListener("htmx:response:error", (event) => {
      partFailed = event.target !== connection;
      stale(`the cockpit answered with an error (${event.detail.ctx.response.status}); its log says why`);
    });
    connection.addEventListener("htmx:sse:before:message", heard);
    connection.addEventListener("htmx:sse:close", (event) => {
      if (event.detail.reason === "ended") stale("the stream has ended; reload to go on");
    });
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) say("paused", "paused: this tab was hidden");
      else say("connecting", "catching up");
    });
    setInterval(() => {
      const quiet = Date.now() - heardAt > SILENCE_MS;
      if (quiet && !document.hidden && connection.dataset.state === "live") stale("nothing heard; trying again");
    }, 1000);
  }

  // --- parts that follow the stream ---

  function refresh(region) {
    if (region.dataset.waits) {
      region.dataset.again = "1";
      return;
    }
    region.dataset.waits = "1";
    // A slow answer is waited for: a busy machine gets fewer questions, not more.
    let answered = false;
    const next = () => {
      if (answered) return;
      answered = true;
      setTimeout(() => {
        delete region.dataset.waits;
        if (!region.dataset.again) return;
        delete region.dataset.again;
        refresh(region);
      }, REFRESH_MS);
    };
    region.addEventListener("htmx:finally:request", next, { once: true });
    setTimeout(next, SILENCE_MS);
    htmx.trigger(region, "refresh", {}, false);
  }

  function refreshAll(topic) {
    for (const region of document.querySelectorAll(`[data-live~="${topic}"]`)) refresh(region);
    if (topic === "job" || topic === "resync") window.nightlaneCharts.refresh();
  }

  if (connection) {
    for (const topic of ["job", "board", "lane", "beat", "resync"]) {
      connection.addEventListener(topic, () => refreshAll(topic));
    }
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

  document.addEventListener("htmx:after:swap", () => {
    if (partFailed) {
      partFailed = false;
      heard();
    }
    window.nightlaneCharts.mount();
    keepLogEnd();
  });
  keepLogEnd();

  // --- heartbeat ages tick between two answers of the server ---

  function duration(seconds) {
    const whole = Math.max(0, Math.round(seconds));
    if (whole < 60) return `${whole} s`;
    if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
    return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
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
  }, 1000);
})();
