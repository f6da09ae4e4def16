// The few settings beside the editor, and a file of rows that is dropped: both are written into the YAML,
// which is what is sent. A value is replaced where it stands, so that comments and order stay.
"use strict";

window.yamlFields = (() => {
  const { parseDocument, isMap } = editing;

  function read(text, name) {
    const found = parseDocument(text).getIn(name.split("."), true);
    if (found === undefined || found === null) return "";
    if (found.range) return text.slice(found.range[0], found.range[1]).trim().replace(/^(["'])(.*)\1$/s, "$2");
    return String(found);
  }

  // --- a change as {from, to, insert} ---

  function written(value, type) {
    const plain = parseDocument(value, { logLevel: "silent" });
    const asRead = plain.errors.length ? undefined : plain.toJS();
    const isText = typeof asRead === "string" && !/[#:]\s|\s#|\n/.test(value);
    if (type === "string" || !value) return isText ? value : JSON.stringify(value);
    return plain.errors.length ? JSON.stringify(value) : value;
  }

  function pairOf(map, key) {
    return isMap(map) ? map.items.find((pair) => pair.key?.value === key) : undefined;
  }

  function endOfLine(text, at) {
    const end = text.indexOf("\n", at);
    return end < 0 ? text.length : end;
  }

  function replaced(text, pair, value) {
    const [begin, end] = pair.value?.range ?? [pair.key.range[1] + 1, pair.key.range[1] + 1];
    const gap = text[begin - 1] === " " || begin === end ? "" : " ";
    return { from: begin, to: end, insert: (begin === end ? " " : gap) + value };
  }

  function removed(text, pair) {
    const from = text.lastIndexOf("\n", pair.key.range[0]) + 1;
    const to = Math.min(endOfLine(text, pair.value?.range?.[1] ?? pair.key.range[1]) + 1, text.length);
    return { from, to, insert: "" };
  }

  function added(text, map, path, value) {
    const items = isMap(map) ? map.items : [];
    const last = items.at(-1);
    const column = last ? last.key.range[0] - (text.lastIndexOf("\n", last.key.range[0] - 1) + 1) : 0;
    const lines = path.map((key, depth) => " ".repeat(column + 2 * depth) + key + ":");
    lines[lines.length - 1] += ` ${value}`;
    const at = last ? endOfLine(text, (last.value?.range?.[1] ?? last.key.range[1]) - 1) : text.length;
    const before = at && text[at - 1] !== "\n" ? "\n" : "";
    const after = text[at] === undefined ? "\n" : "";
    return { from: at, to: at, insert: before + lines.join("\n") + after };
  }

  // What makes `name` be `value`; an empty one takes the setting out. null where the text cannot be read.
  function change(text, name, value, type) {
    const found = parseDocument(text);
    if (found.errors.length) return null;
    const path = name.split(".");
    let map = found.contents;
    for (const [depth, key] of path.entries()) {
      const pair = pairOf(map, key);
      const last = depth === path.length - 1;
      if (last && !pair && !value) return null;
      if (!pair || (!last && !isMap(pair.value))) {
        if (!value || map?.flow || pair) return whole(found, path, value, type, text);
        return added(text, map, path.slice(depth), written(value, type));
      }
      if (last && !value) return map.flow ? whole(found, path, value, type, text) : removed(text, pair);
      if (last) return replaced(text, pair, written(value, type));
      map = pair.value;
    }
    return null;
  }

  // Where the place is none for a line of its own the document is written anew.
  function whole(found, path, value, type, text) {
    if (value) found.setIn(path, parseDocument(written(value, type)).contents);
    else found.deleteIn(path);
    return { from: 0, to: text.length, insert: found.toString({ lineWidth: 0 }) };
  }

  return { read, change };
})();
