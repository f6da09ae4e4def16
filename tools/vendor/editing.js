// What the editor of the New job page is made of, as two globals: everything here is of others.
export { EditorState, Compartment, Transaction } from "@codemirror/state";
export { EditorView, keymap, lineNumbers, drawSelection, highlightActiveLine } from "@codemirror/view";
export { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
export { autocompletion, completionKeymap, startCompletion, acceptCompletion } from "@codemirror/autocomplete";
export { HighlightStyle, syntaxHighlighting, indentUnit } from "@codemirror/language";
export { tags } from "@lezer/highlight";
export { lintGutter, setDiagnostics, nextDiagnostic } from "@codemirror/lint";
export { yaml } from "@codemirror/lang-yaml";
export { parseDocument, isMap } from "yaml";
