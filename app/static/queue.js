// Reordering the queue: drag a row by its grip, or focus the grip and use the arrow keys. The
// buttons beside it do the same without this file. The server decides; the page asks it again.
"use strict";

(() => {
  const said = document.getElementById("said");
  let drag = null; // {job, over, side}
  let focusOn = null; // the grip that must keep the focus through the next redraw
  document.body.dataset.moves = "";

  function rows() {
    return [...document.querySelectorAll("#turn [data-job]")];
  }

  // Where the row will stand, counted from one.
  function placeOf(row, { before, after }) {
    const others = rows().map((other) => other.dataset.job).filter((job) => job !== row.dataset.job);
    if (before) return others.indexOf(before) + 1;
    return after ? others.indexOf(after) + 2 : 1;
  }

  async function move(row, place) {
    const name = `${row.dataset.name}, job ${row.dataset.job},`;
    const number = placeOf(row, place);
    focusOn = `grip-${row.dataset.job}`;
    try {
      const answer = await fetch(`/queue/jobs/${row.dataset.job}/move`, {
        method: "POST",
        body: new URLSearchParams(place),
        redirect: "manual", // the page is not wanted, only the word that it was done
        headers: { accept: "application/json" },
      });
      if (answer.type === "opaqueredirect") {
        said.textContent = `${name} was moved to place ${number}`;
      } else {
        said.textContent = `${name} was not moved: ${(await answer.json()).detail}`;
      }
    } catch {
      said.textContent = `${name} was not moved: the cockpit does not answer`;
    }
    htmx.trigger(document.getElementById("live"), "refresh", {}, false);
  }

  document.addEventListener("htmx:after:swap", () => {
    const grip = focusOn && document.getElementById(focusOn);
    if (grip && document.activeElement === document.body) grip.focus();
  });
  document.addEventListener("focusout", (event) => {
    if (event.relatedTarget) focusOn = null;
  });

  // --- keys on the grip ---

  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return drop(false);
    const row = event.target.closest(".grip")?.closest("[data-job]");
    if (!row) return;
    const all = rows();
    const at = all.indexOf(row);
    const place = {
      ArrowUp: () => all[at - 1] && { before: all[at - 1].dataset.job },
      ArrowDown: () => all[at + 1] && { after: all[at + 1].dataset.job },
      Home: () => at > 0 && { to: "top" },
      End: () => at < all.length - 1 && { after: all.at(-1).dataset.job },
    }[event.key];
    if (!place) return;
    event.preventDefault();
    const wanted = place();
    if (wanted) move(row, wanted);
    else said.textContent = `${row.dataset.name} is already ${at ? "last" : "first"}`;
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
