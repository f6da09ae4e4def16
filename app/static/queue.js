// Reordering the queue: drag a row by its grip, use Alt and the arrow keys on a row or the arrow keys
// alone on its grip, or press the buttons beside it, which do the same without this file. t runs a job
// next, e edits it, Del cancels it. The server decides; the page asks it again.
"use strict";

(() => {
  const NO_ANSWER = "the cockpit does not answer";
  const SETTLED_MS = 1000; // so long after the last answer the page surely shows what it did
  const said = document.getElementById("said");
  let drag = null; // {job, over, side}
  let keep = null; // {job, words}: the grip, or the button of these words, that keeps the focus
  let order = []; // the jobs as they will stand when all that was asked for is done
  let waiting = []; // moves that were asked for: one is sent when the one before is answered
  let answeredAt = 0;
  let silent = false; // what is said is that the cockpit does not answer
  let lost = false; // nor did it when the page was to be drawn again: its next answer takes that back
  document.body.dataset.moves = "";

  function rows() {
    return [...document.querySelectorAll("#turn [data-job]")];
  }

  function say(words, refused = false) {
    silent = words.endsWith(NO_ANSWER);
    lost = false;
    said.className = refused ? "cause" : "unseen";
    said.textContent = words;
  }

  // Keys come faster than answers: each move starts where the ones before it will have led.
  function inTurn() {
    if (!waiting.length && Date.now() - answeredAt > SETTLED_MS) {
      order = rows().map((row) => row.dataset.job);
    }
    return order;
  }

  function move(row, place, words = null) {
    const { job, name } = row.dataset;
    const others = inTurn().filter((other) => other !== job);
    const at = place.after ? others.indexOf(place.after) + 1 : Math.max(0, others.indexOf(place.before));
    order = others.toSpliced(at, 0, job);
    keep = { job, words };
    waiting.push({ job, place, name: `${name}, job ${job},`, number: at + 1 });
    if (waiting.length === 1) send();
  }

  async function send() {
    const { job, place, name, number } = waiting[0];
    const why = await refusal(job, place);
    if (why === null) say(`${name} was moved to place ${number}`);
    else say(`${name} was not moved: ${why}`, true);
    waiting = why === null ? waiting.slice(1) : []; // what was built on a refused move is nothing
    answeredAt = why === null ? Date.now() : 0;
    if (waiting.length) send();
    else htmx.trigger(document.getElementById("live"), "refresh", {}, false);
  }

  // Why the server did not do it; null when it did.
  async function refusal(job, place) {
    try {
      const answer = await fetch(`/queue/jobs/${job}/move`, {
        method: "POST",
        body: new URLSearchParams(place),
        redirect: "manual", // the page is not wanted, only the word that it was done
        headers: { accept: "application/json" },
      });
      return answer.type === "opaqueredirect" ? null : (await answer.json()).detail;
    } catch {
      return NO_ANSWER;
    }
  }

  // Redrawn, the row may have other buttons: the one that was pressed is never left as another one.
  document.addEventListener("htmx:error", () => {
    lost = silent;
  });
  document.addEventListener("htmx:after:swap", () => {
    if (lost) say("");
    const row = keep && document.getElementById(`q-${keep.job}`);
    const focused = document.activeElement;
    if (!row || (focused !== document.body && !row.contains(focused))) return;
    const buttons = [...row.querySelectorAll(".does button")];
    const wanted = buttons.find((button) => button.textContent === keep.words);
    if (wanted) wanted.focus();
    else if (!row.contains(focused) || keep.words) row.querySelector(".grip").focus();
  });
  document.addEventListener("focusout", (event) => {
    if (event.relatedTarget) keep = null;
  });

  // --- the buttons beside it ---

  document.addEventListener("submit", (event) => {
    const row = event.target.closest("#turn [data-job]");
    if (!row || !event.target.action.endsWith("/move")) return;
    event.preventDefault();
    move(row, Object.fromEntries(new FormData(event.target)), event.submitter?.textContent);
  });

  // --- keys: on the grip alone, with Alt on the whole row ---

  function placed(key, job) {
    const all = inTurn();
    const at = all.indexOf(job);
    return {
      ArrowUp: () => all[at - 1] && { before: all[at - 1] },
      ArrowDown: () => all[at + 1] && { after: all[at + 1] },
      Home: () => at > 0 && { to: "top" },
      End: () => at < all.length - 1 && { after: all.at(-1) },
    }[key];
  }

  function moveBy(key, row) {
    const wanted = placed(key, row.dataset.job)();
    if (wanted) move(row, wanted);
    else say(`${row.dataset.name} is already ${["ArrowUp", "Home"].includes(key) ? "first" : "last"}`);
  }

  function does(key, row) {
    if (localStorage.getItem("nightlane.keys") === "off") return false; // single letters alone
    if (key === "t" && row.dataset.job) moveBy("Home", row);
    else if (key === "e") row.querySelector("[data-edit]").click();
    else if (key === "Delete") row.querySelector("[data-cancel]").requestSubmit();
    else return false;
    return true;
  }

  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return drop(false);
    if (event.defaultPrevented || event.ctrlKey || event.metaKey) return;
    const row = event.target.closest(".night li[id]");
    if (!row) return;
    const moves = row.dataset.job && placed(event.key, row.dataset.job) && (event.altKey || event.target.closest(".grip"));
    if (moves) moveBy(event.key, row);
    else if (event.altKey || !does(event.key, row)) return;
    event.preventDefault();
  });

  // --- dragging by the grip: mouse, pen and finger alike ---

  function mark() {
    for (const row of rows()) {
      delete row.dataset.drop;
      delete row.dataset.lifted;
      if (drag && row.dataset.job === drag.job) row.dataset.lifted = "";
      if (drag && row.dataset.job === drag.over) row.dataset.drop = drag.side;
    }
  }

  function drop(done) {
    if (!drag) return;
    const { job, over, side } = drag;
    drag = null;
    delete document.body.dataset.dragging;
    mark();
    const row = document.getElementById(`q-${job}`);
    if (done && over && row) move(row, { [side]: over });
  }

  document.addEventListener("pointerdown", (event) => {
    const grip = event.target.closest(".grip");
    if (!grip || event.button !== 0) return;
    event.preventDefault();
    grip.focus();
    grip.setPointerCapture(event.pointerId);
    drag = { job: grip.closest("[data-job]").dataset.job, over: null, side: null };
    document.body.dataset.dragging = "";
    mark();
  });

  document.addEventListener("pointermove", (event) => {
    if (!drag) return;
    const row = document.elementFromPoint(event.clientX, event.clientY)?.closest("#turn [data-job]");
    if (row) {
      const box = row.getBoundingClientRect();
      drag.side = event.clientY < box.top + box.height / 2 ? "before" : "after";
      drag.over = row.dataset.job === drag.job ? null : row.dataset.job;
    }
    mark();
  });

  document.addEventListener("pointerup", () => drop(true));
  document.addEventListener("pointercancel", () => drop(false));
})();
