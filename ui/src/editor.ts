// The editor for queries: CodeMirror with PromQL. The page loads it when Explore is
// first opened, because it is larger than the rest of the page.
import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap, startCompletion } from '@codemirror/autocomplete'
import { defaultKeymap, history, historyKeymap, insertNewlineAndIndent } from '@codemirror/commands'
import { bracketMatching, forceParsing, HighlightStyle, syntaxHighlighting } from '@codemirror/language'
import { lintKeymap } from '@codemirror/lint'
import { EditorState, Prec, StateEffect, StateField } from '@codemirror/state'
import { Decoration, EditorView, keymap, placeholder, WidgetType, type DecorationSet } from '@codemirror/view'
import { tags } from '@lezer/highlight'
import { PromQLExtension } from '@prometheus-io/codemirror-promql'
import { fetchAPI } from './api'

export interface Editor {
  set(text: string): void // does nothing if the editor already has this text
  mark(fault: number | null): void // marks an error at a place in the text, until the text changes
  focus(): void
  destroy(): void
}

export interface Options {
  text: string
  label: string
  base: string // path of the API that completes names
  onChange(text: string): void
  onRun(): void
  onRecall(by: 1 | -1): void // 1 recalls an older query of the history, -1 a newer one
}

const theme = EditorView.theme({
  '&': { color: 'var(--text)', backgroundColor: 'transparent', fontSize: '13px' },
  '&.cm-focused': { outline: 'none' },
  '.cm-content': { fontFamily: 'var(--mono)', caretColor: 'var(--text)', padding: '7px 0' },
  '.cm-line': { padding: '0 10px' },
  '.cm-cursor': { borderLeftColor: 'var(--text)' },
  '.cm-placeholder': { color: 'var(--muted)' },
  '&.cm-focused .cm-selectionBackground, .cm-selectionBackground, .cm-content ::selection': { backgroundColor: 'var(--selected)' },
  '&.cm-focused .cm-matchingBracket': { backgroundColor: 'var(--selected)', outline: 'none' },
  '&.cm-focused .cm-nonmatchingBracket': { backgroundColor: 'transparent', color: 'var(--bad)' },
  '.cm-tooltip': { backgroundColor: 'var(--panel)', color: 'var(--text)', border: '1px solid var(--line)', borderRadius: '6px', boxShadow: 'var(--shadow)' },
  '.cm-tooltip.cm-tooltip-autocomplete > ul': { fontFamily: 'var(--mono)', fontSize: '12.5px', maxHeight: '260px' },
  '.cm-tooltip.cm-tooltip-autocomplete > ul > li': { padding: '3px 8px' },
  '.cm-tooltip-autocomplete ul li[aria-selected]': { backgroundColor: 'var(--selected)', color: 'var(--text)' },
  '.cm-completionMatchedText': { textDecoration: 'none', fontWeight: '700' },
  '.cm-completionDetail': { color: 'var(--muted)', fontStyle: 'normal', marginLeft: '1em' },
  '.cm-completionInfo': { padding: '6px 10px', maxWidth: '340px' },
  '.cm-fault': { backgroundColor: 'var(--bad-bg)', textDecoration: 'underline wavy var(--bad)', textDecorationSkipInk: 'none' },
  '.cm-diagnostic': { fontFamily: 'var(--sans)', padding: '5px 10px' },
})

const highlight = HighlightStyle.define([
  { tag: tags.name, color: 'var(--text)' },
  { tag: tags.number, color: 'var(--syntax-number)' },
  { tag: tags.string, color: 'var(--syntax-string)' },
  { tag: tags.keyword, color: 'var(--syntax-keyword)' },
  { tag: tags.function(tags.variableName), color: 'var(--syntax-function)' },
  { tag: tags.labelName, color: 'var(--syntax-label)' },
  { tag: tags.operator, color: 'var(--muted)' },
  { tag: tags.modifier, color: 'var(--syntax-keyword)' },
  { tag: tags.comment, color: 'var(--muted)' },
  { tag: tags.invalid, color: 'var(--bad)' },
])

const setFault = StateEffect.define<number | null>()

// faults marks the error in a query: a word, a character, or the place behind the last character.
const faults = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(marks, change) {
    if (change.docChanged) marks = Decoration.none
    for (const e of change.effects) if (e.is(setFault)) marks = e.value === null ? Decoration.none : markAt(change.state, e.value)
    return marks
  },
  provide: (field) => [
    EditorView.decorations.from(field),
    EditorView.contentAttributes.of((view): Record<string, string> => (view.state.field(field).size ? { 'aria-invalid': 'true' } : {})),
  ],
})

function markAt(state: EditorState, place: number): DecorationSet {
  const [word] = state.sliceDoc(place).match(/^(?:[\w:.]+|\S)/u) ?? ['']
  const mark = word ? Decoration.mark({ class: 'cm-fault' }).range(place, place + word.length) : Decoration.widget({ widget: new Missing(), side: 1 }).range(place)
  return Decoration.set(mark)
}

// Missing marks the place where a query lacks something.
class Missing extends WidgetType {
  toDOM() {
    const space = document.createElement('span')
    space.className = 'cm-fault'
    space.textContent = '\u00a0'
    return space
  }
}

const check = new PromQLExtension().getLinter().promQL()

// lint marks errors in a text that is parsed to its end. CodeMirror parses for 20 ms at first, and a linter that sees a
// part of a query on a busy machine would mark an error that is not there.
function lint(view: EditorView) {
  forceParsing(view, view.state.doc.length, 5000)
  return check(view)
}

export function mount(parent: HTMLElement, o: Options): Editor {
  const promql = new PromQLExtension()
    .setComplete({ remote: { url: new URL(o.base || '.', document.baseURI).pathname.replace(/\/$/, ''), fetchFn: fetchAPI, httpMethod: 'GET', httpErrorHandler: () => {} } })
    .setLinter({ promQL: () => lint })
  const nonce = document.querySelector<HTMLMetaElement>('meta[name=csp-nonce]')!.content
  const keys = Prec.highest(
    keymap.of([
      { key: 'Mod-Enter', run: () => (o.onRun(), true) },
      { key: 'Shift-Enter', run: insertNewlineAndIndent },
      { key: 'Alt-ArrowUp', run: () => (o.onRecall(1), true) },
      { key: 'Alt-ArrowDown', run: () => (o.onRecall(-1), true) },
    ]),
  )
  const enter = keymap.of([{ key: 'Enter', run: () => (o.onRun(), true) }]) // while the completion is open, its keys take precedence
  let setting = false // true while set runs: the caller of set needs no onChange
  const view = new EditorView({
    parent,
    state: EditorState.create({
      doc: o.text,
      extensions: [
        EditorView.cspNonce.of(nonce),
        EditorView.contentAttributes.of({ 'aria-label': o.label, 'data-slash': '' }),
        EditorView.lineWrapping,
        EditorView.updateListener.of((u) => u.docChanged && !setting && o.onChange(u.state.doc.toString())),
        placeholder('PromQL, such as rate(page_views[1m])'),
        history(),
        bracketMatching(),
        closeBrackets(),
        autocompletion({ icons: false }),
        syntaxHighlighting(highlight),
        faults,
        theme,
        keys,
        keymap.of([...completionKeymap, { key: 'Ctrl-Space', run: startCompletion }]),
        enter,
        keymap.of([...closeBracketsKeymap, ...historyKeymap, ...lintKeymap, ...defaultKeymap]),
        promql.asExtension(),
      ],
    }),
  })
  return {
    set(text) {
      if (text === view.state.doc.toString()) return
      setting = true
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text }, selection: { anchor: text.length } })
      setting = false
    },
    mark: (fault) => view.dispatch({ effects: setFault.of(fault) }),
    focus: () => view.focus(),
    destroy() {
      promql.destroy()
      view.destroy()
    },
  }
}
