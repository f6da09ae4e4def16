// The run page's controls: what they say stands in the address, so that a link shows the same, and
// the charts are told. A series of the long list is drawn when it is opened.
"use strict";

(() => {
  const controls = document.getElementById("chart-controls");
  const ends = controls ? [controls.elements.from, controls.elements.to] : []; // of the part shown
  const home = document.getElementById("zoom-out");
  let told = location.search; // what the charts show

  // The first of a choice is what a page without a word about it shows.
  function usual(name) {
    const field = controls.elements[name];
    return (field.options?.[0] ?? field[0]).value;
  }

  // An axis or a part that somebody chose is a place to come back to.
  function remember(change, place = false) {
    const address = new URL(location.href);
    change(address.searchParams);
    if (place && address.href !== location.href) history.pushState(null, "", address);
    else history.replaceState(null, "", address);
    told = address.search;
    say(address.searchParams);
  }

  // The fields say what the address says: a dragged part stands in them too.
  function say(query) {
    for (const end of ends) end.value = query.get(end.name) ?? "";
    for (const { name } of controls?.querySelectorAll("select, [type=radio]:checked") ?? []) {
      controls.elements[name].value = query.get(name) ?? usual(name);
    }
    if (home) home.hidden = ends.every((end) => end.value === "");
  }

  // Two steps in either order; an empty one leaves that end open.
  function show(from, to) {
    const turned = from !== "" && to !== "" && Number(from) > Number(to);
    remember((query) => {
      for (const [name, step] of [["from", turned ? to : from], ["to", turned ? from : to]]) {
        if (step === "") query.delete(name);
        else query.set(name, step);
      }
    }, true);
    window.nightlaneCharts.reload();
  }

  controls?.addEventListener("change", ({ target }) => {
    if (ends.includes(target)) {
      if (target.reportValidity()) show(...ends.map((end) => end.value));
      return;
    }
    remember((query) => {
      if (target.value === usual(target.name)) query.delete(target.name);
      else query.set(target.name, target.value);
    }, target.name === "axis");
    // A part is smoothed from what lies before it, which the server knows.
    const whole = ends.every((end) => end.value === "");
    if (target.name === "scale" || (target.name === "smooth" && whole)) window.nightlaneCharts.redraw();
    else window.nightlaneCharts.reload();
  });

  home?.addEventListener("click", () => {
    controls.focus(); // the button goes away under it
    show("", "");
  });

  document.addEventListener("nightlane:zoom", ({ detail }) => show(detail.from, detail.to));

  // A search among the series keeps what the charts show; its hidden fields say what they showed first.
  const find = document.querySelector("#series form.find");
  find?.addEventListener("formdata", ({ formData }) => {
    const words = formData.get("find");
    for (const name of [...formData.keys()]) formData.delete(name);
    for (const [name, value] of new URLSearchParams(location.search)) {
      if (name !== "find") formData.append(name, value);
    }
    if (words) formData.append("find", words);
  });

  addEventListener("popstate", () => {
    if (location.search === told) return; // only to another place on the page
    told = location.search;
    const query = new URLSearchParams(told);
    say(query);
    for (const series of document.querySelectorAll("details[data-series]")) {
      series.open = query.getAll("show").includes(series.dataset.series);
    }
    window.nightlaneCharts.reload();
  });

  document.addEventListener("toggle", ({ target }) => {
    const { series } = target.dataset ?? {};
    if (!series) return;
    remember((query) => {
      const others = query.getAll("show").filter((name) => name !== series);
      query.delete("show");
      for (const name of target.open ? [...others, series] : others) query.append("show", name);
    });
    window.nightlaneCharts.mount();
  }, true);

  // A path or a command into the clipboard. Where the browser has none for this address, it is
  // marked, for Ctrl C.
  const SAID_MS = 2000;
  document.addEventListener("click", async ({ target }) => {
    const button = target.closest?.("[data-copy]");
    if (!button) return;
    const line = button.parentElement.querySelector("code");
    const copied = await navigator.clipboard?.writeText(line.textContent).then(() => true, () => false);
    if (!copied) getSelection().selectAllChildren(line);
    button.textContent = copied ? "copied" : "marked";
    setTimeout(() => (button.textContent = "copy"), SAID_MS);
  });
})();
