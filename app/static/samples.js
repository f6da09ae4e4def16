// The reader of answers: its list is where the shown answer is, and a link is copied. All else is
// links and forms; the keys are those of keys.js.
"use strict";

(() => {
  const shown = document.querySelector(".list [aria-current]");
  if (shown) {
    const list = shown.closest(".list");
    list.scrollTop = shown.offsetTop - list.clientHeight / 3;
  }

  document.addEventListener("click", async (event) => {
    const link = event.target.closest("[data-copy-link]");
    if (!link || event.ctrlKey || event.metaKey || !navigator.clipboard) return;
    event.preventDefault();
    try {
      await navigator.clipboard.writeText(link.href);
      link.textContent = "Link copied";
    } catch {
      location.assign(link.href);
    }
  });
})();
