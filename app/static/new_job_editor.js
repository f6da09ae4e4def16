// The editor of the YAML: completion by the kind's settings, problems at their line, what a line means.
// Without it the text is a field of the form and the check says the lines.
"use strict";

(() => {
  const area = document.getElementById("yaml");
  const form = document.getElementById("job");
  const explained = document.getElementById("explained");
  const check = document.getElementById("check");
  const { EditorView, EditorState, keymap } = editing;
  const words = new Map();
  const sections = new Set();

  fetch(`/new/words?kind=${encodeURIComponent(form.dataset.kind)}`).then((answer) => answer.json()).then((found) => {
    for (const word of found) {
      words.set(word.name, word);
      const path = word.name.split(".");
      for (let depth = 1; depth < path.length; depth++) sections.add(path.slice(0, depth).join("."));
    }
    explain();
  }, () => {});

  // --- where in the document ---

  // Dotted name of the section that a line of so much indentation stands in.
  function above(state, line, indent) {
    const path = [];
    for (let number = line - 1; number > 0 && indent > 0; number--) {
      const found = /^(\s*)([\w.]+):/.exec(state.doc.line(number).text);
      if (!found || found[1].length >= indent) continue;
      indent = found[1].length;
      path.unshift(found[2]);
    }
    return path;
  }

  function nameAt(state, line) {
    const found = /^(\s*)(?:- )?([\w.]+):/.exec(line.text);
    return found ? [...above(state, line.number, found[1].length), found[2]].join(".") : "";
  }

  // --- completion ---

  function keys(path, written) {
    const before = path.length ? `${path.join(".")}.` : "";
    const names = [...words.keys(), ...sections].filter((name) => name.startsWith(before));
    const here = new Set(names.map((name) => name.slice(before.length).split(".")[0]));
    return [...here].filter((key) => !written.has(key)).map((key) => {
      const word = words.get(before + key);
      const section = sections.has(before + key);
      const column = " ".repeat(2 * (path.length + 1));
      return {
        label: key,
        apply: section ? `${key}:\n${column}` : `${key}: `,
        detail: section ? "…" : shown(word),
        info: word?.help,
        type: "property",
      };
    });
  }

  function shown(word) {
    if (word.required) return "required";
    return word.default === null || word.default === undefined ? word.type : String(word.default);
  }

  function values(name) {
    const word = words.get(name);
    const known = word?.choices.length ? word.choices : word?.type === "boolean" ? ["true", "false"] : [];
    const models = name === "base" || name === "model.path" ? [...document.querySelectorAll("#models option")].map((one) => one.value) : [];
    return [...known, ...models].map((label) => ({ label, type: "constant" }));
  }

  function complete(context) {
    const line = context.state.doc.lineAt(context.pos);
    const before = line.text.slice(0, context.pos - line.from);
    const value = /^(\s*)([\w.]+):\s+(\S*)$/.exec(before);
    if (value) {
      const name = [...above(context.state, line.number, value[1].length), value[2]].join(".");
      const options = values(name);
      return options.length ? { from: context.pos - value[3].length, options } : null;
    }
    const key = /^(\s*)([\w.]*)$/.exec(before);
    if (!key || (!key[2] && !context.explicit)) return null;
    const path = above(context.state, line.number, key[1].length);
    const written = new Set(context.state.doc.toString().split("\n").filter((text, at) => at !== line.number - 1)
      .map((text) => /^([\w.]+):/.exec(text)?.[1]).filter(() => !path.length));
    return { from: context.pos - key[2].length, options: keys(path, written) };
  }

  // --- what a line means ---

  function explain() {
    const name = nameAt(view.state, view.state.doc.lineAt(view.state.selection.main.head));
    const word = words.get(name);
    if (!word) return;
    const title = document.createElement("b");
    title.className = "mono";
    title.textContent = name;
    const rest = word.default === null || word.default === undefined ? "" : ` Default: ${JSON.stringify(word.default)}.`;
    const limits = word.limits ? ` (${word.limits})` : "";
    explained.replaceChildren(title, ` ${word.help}${limits}${rest}`);
  }

  // --- problems at their lines ---

  function diagnostics() {
    const found = [];
    for (const one of check.querySelectorAll("[data-line]")) {
      const number = Number(one.dataset.line);
      if (number > view.state.doc.lines) continue;
      const line = view.state.doc.line(number);
      const from = Math.min(line.from + Number(one.dataset.begin), line.to);
      const to = Math.max(Math.min(line.from + Number(one.dataset.end), line.to), from);
      const { instead } = one.dataset;
      const write = (target, begin, end) => target.dispatch({ changes: { from: begin, to: end, insert: instead } });
      found.push({
        from,
        to,
        severity: "error",
        message: one.textContent.replace(/\s+/g, " ").trim(),
        actions: instead ? [{ name: `Write ${instead}`, apply: write }] : [],
      });
    }
    view.dispatch(editing.setDiagnostics(view.state, found));
    offer();
  }

  // The one thing that a problem's remedy names, as a button beside the problem.
  function offer() {
    for (const one of check.querySelectorAll("[data-instead][data-line]:not(:has(button))")) {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "second";
      button.textContent = `Write ${one.dataset.instead}`;
      button.addEventListener("click", () => {
        const line = view.state.doc.line(Number(one.dataset.line));
        const changes = { from: line.from + Number(one.dataset.begin), to: line.from + Number(one.dataset.end), insert: one.dataset.instead };
        view.dispatch({ changes });
        view.focus();
      });
      one.append(" ", button);
    }
  }

  document.addEventListener("htmx:after:swap", ({ target }) => {
    if (target !== form && target !== check) return;
    diagnostics();
    show();
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("[data-go-to]");
    if (!link) return;
    event.preventDefault();
    const line = view.state.doc.line(Math.min(Number(link.dataset.goTo), view.state.doc.lines));
    view.dispatch({ selection: { anchor: line.from, head: line.to }, scrollIntoView: true });
    view.focus();
  });

  // --- the few settings beside it ---

  const settings = () => document.querySelectorAll("[data-setting]");

  function show() {
    const text = view.state.doc.toString();
    for (const field of settings()) {
      if (field === document.activeElement) continue;
      const value = yamlFields.read(text, field.dataset.setting);
      const listed = field.tagName !== "SELECT" || [...field.options].some((option) => option.value === value);
      field.value = listed ? value : "";
    }
  }

  function set(name, value, type) {
    const changes = yamlFields.change(view.state.doc.toString(), name, value, type);
    if (changes) view.dispatch({ changes });
  }

  document.addEventListener("input", ({ target }) => {
    if (target.dataset?.setting) set(target.dataset.setting, target.value.trim(), target.dataset.type);
  });

  // --- a file of rows ---

  const file = document.getElementById("file");
  const sent = document.getElementById("sent-rows");

  async function send(chosen) {
    if (!sent || !form.dataset.namesRows) return;
    if (chosen.size > Number(form.dataset.most)) {
      sent.textContent = `${chosen.name} has ${(chosen.size / 1e9).toFixed(1)} GB, and 2 GB at most are sent: write its path`;
      return;
    }
    sent.textContent = `sending ${chosen.name} …`;
    const asked = { method: "POST", body: chosen, headers: { "content-type": "application/octet-stream" } };
    const answer = await fetch(`/new/rows?name=${encodeURIComponent(chosen.name)}`, asked).catch(() => null);
    const found = await answer?.json().catch(() => null);
    if (!answer?.ok) {
      sent.textContent = found?.detail ?? "the cockpit does not answer; nothing was kept";
      return;
    }
    sent.textContent = `${chosen.name} is kept with the data of this cockpit`;
    set(form.dataset.namesRows, found.path, "string");
    show();
  }

  file?.addEventListener("change", () => file.files[0] && send(file.files[0]));
  const carries = (event) => event.dataTransfer?.types.includes("Files");
  document.addEventListener("dragover", (event) => carries(event) && event.preventDefault());
  document.addEventListener("drop", (event) => {
    if (!carries(event)) return;
    event.preventDefault();
    if (event.dataTransfer.files[0]) send(event.dataTransfer.files[0]);
  });

  // --- rows of one's own go along to another recipe or run ---

  const CARRIED = "nightlane-rows carried";
  const section = (form.dataset.namesRows ?? "").replace(/[^.]*$/, "");
  const ofRows = [form.dataset.namesRows, ...["split", "layout", "prompt_field", "answer_field"].map((name) => section + name)];

  function ownRows() {
    const now = ofRows.map((name) => yamlFields.read(area.value, name));
    const given = ofRows.map((name) => yamlFields.read(area.defaultValue, name));
    return now.join("\n") === given.join("\n") ? null : Object.fromEntries(ofRows.map((name, at) => [name, now[at]]));
  }

  for (const link of document.querySelectorAll(".starts a:not(.kind)")) {
    link.addEventListener("click", ({ ctrlKey, metaKey, shiftKey }) => {
      const rows = ctrlKey || metaKey || shiftKey ? null : ownRows();
      if (rows) sessionStorage.setItem(CARRIED, JSON.stringify(rows));
    });
  }

  function takeRows() {
    const rows = JSON.parse(sessionStorage.getItem(CARRIED) ?? "{}");
    sessionStorage.removeItem(CARRIED);
    if (!(form.dataset.namesRows in rows)) return;
    for (const [name, value] of Object.entries(rows)) set(name, value, "string");
  }

  // --- the editor itself, in a root of its own: its styles are sheets that the page's policy lets in ---

  const look = EditorView.theme({
    "&": { fontSize: "inherit", height: "100%", color: "var(--ink)" },
    ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.25rem" },
    ".cm-gutters": { background: "none", color: "var(--quiet)", border: "0" },
    ".cm-activeLine": { background: "var(--sunken)" },
    ".cm-cursor": { borderLeftColor: "var(--ink)" },
    ".cm-selectionBackground": { background: "var(--accent-wash) !important" },
    "&.cm-focused": { outline: "none" },
    ".cm-tooltip": { background: "var(--surface)", color: "var(--ink)", border: "1px solid var(--soft-frame)", boxShadow: "var(--lifted)" },
    ".cm-tooltip-autocomplete > ul > li[aria-selected]": { background: "var(--accent)", color: "var(--on-accent)" },
    ".cm-completionInfo": { maxWidth: "24rem", fontFamily: "var(--sans)" },
    ".cm-completionDetail": { color: "inherit", opacity: "1" },
    ".cm-diagnostic": { fontFamily: "var(--sans)", borderLeftColor: "var(--bad)" },
    ".cm-diagnosticAction": { background: "var(--surface)", color: "var(--ink)", border: "1px solid var(--frame)" },
    ".cm-lintRange-error": { backgroundImage: "none", textDecoration: "underline wavy var(--bad)", textUnderlineOffset: "3px" },
    ".cm-lint-marker-error": { content: "none", background: "var(--bad)", borderRadius: "50%", width: "8px", height: "8px", margin: "6px 3px" },
  });
  const { tags } = editing;
  const colours = editing.HighlightStyle.define([
    { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: "var(--accent)" },
    { tag: tags.comment, color: "var(--quiet)" },
    { tag: [tags.invalid], color: "var(--bad)" },
  ]);
  const submit = () => {
    form.requestSubmit(document.querySelector(".go button[value=queue]"));
    return true;
  };
  const box = document.getElementById("editor");
  const root = box.attachShadow({ mode: "open" });
  const view = new EditorView({
    root,
    parent: root,
    state: EditorState.create({
      doc: area.value,
      extensions: [
        editing.lineNumbers(),
        editing.lintGutter(),
        editing.history(),
        editing.drawSelection(),
        editing.highlightActiveLine(),
        editing.yaml(),
        editing.syntaxHighlighting(colours),
        editing.indentUnit.of("  "),
        editing.autocompletion({ override: [complete], icons: false, interactionDelay: 0 }),
        keymap.of([
          { key: "Mod-Enter", run: submit },
          { key: "Tab", run: editing.acceptCompletion },
          { key: "F8", run: editing.nextDiagnostic },
          ...editing.completionKeymap,
          ...editing.defaultKeymap,
          ...editing.historyKeymap,
        ]),
        EditorView.contentAttributes.of({ "aria-label": "Config as YAML", "aria-describedby": "explained" }),
        EditorView.lineWrapping,
        look,
        EditorView.updateListener.of((update) => {
          if (update.docChanged) told();
          if (update.docChanged || update.selectionSet) explain();
        }),
      ],
    }),
  });

  function told() {
    area.value = view.state.doc.toString();
    area.dispatchEvent(new Event("input", { bubbles: true }));
    show();
  }

  // A draft that was kept is written into the field.
  form.addEventListener("change", () => {
    if (area.value === view.state.doc.toString()) return;
    view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: area.value } });
  });

  area.hidden = true;
  box.hidden = false;
  takeRows();
  diagnostics();
  show();
})();
