// A page that the server has drawn whole is shown before its scripts run: they are asked for behind
// its first frame, one after the other. A page that nobody sees yet has no frame to wait for.
"use strict";

(() => {
  const { behind } = document.currentScript.dataset;

  function go() {
    for (const address of behind.split(" ")) {
      const script = document.createElement("script");
      script.src = address;
      script.async = false;
      document.body.append(script);
    }
  }

  // Next after the frame: a timer would stand behind what the browser does when a page has loaded.
  const next = globalThis.scheduler?.postTask
    ? (task) => scheduler.postTask(task, { priority: "user-blocking" })
    : setTimeout;

  const seen = document.visibilityState === "visible";
  if (!seen) go();
  requestAnimationFrame(() => next(() => {
    performance.mark("stills-shown"); // for who measures: the frame with the server's charts has been made
    if (seen) go();
  }));
})();
