// Rules: the groups of each file, with their health, and what they wait for.
//
//   q=TEXT               only rules with this text in their name or expression
//   health=err           only rules that cannot be evaluated
import { useState } from 'preact/hooks'
import { usePoll } from './api'
import { clock, count, dateTime, seconds, span } from './format'
import { Choice, Empty, Explored, Figure, Figures, Link, Loading, Name, Panel, Problem, Table, Text } from './parts'
import { go, usePlace } from './router'
import { rulesOf, waitOf, type Group, type Rule, type Waits } from './rulesapi'
import { Late, Watermark } from './waits'

const healths = [['', 'All'], ['err', 'With errors']] as const

export function Rules() {
  const { params } = usePlace()
  const { data, error } = usePoll((signal) => rulesOf({ exclude_alerts: 'true' }, signal), 5000, [])
  const text = params.get('q') ?? ''
  const health = healths.find(([h]) => h === params.get('health'))?.[0] ?? ''
  const change = (key: string, value: string) => {
    const next = new URLSearchParams(params)
    if (value) next.set(key, value)
    else next.delete(key)
    go('rules', next, true)
  }
  const wanted = (r: Rule) => (!health || r.health === health) && `${r.name} ${r.query}`.toLowerCase().includes(text.toLowerCase())
  const groups = (data?.groups ?? []).map((g) => ({ ...g, rules: g.rules.filter(wanted) })).filter((g) => g.rules.length > 0)
  return (
    <div class="rules">
      <div class="toolbar">
        <h1>Rules</h1>
        <Choice label="Health" value={health} options={healths} onChange={(h) => change('health', h)} />
        <label class="field inline">
          Filter
          <input type="search" data-slash value={text} onInput={(e) => change('q', e.currentTarget.value)} />
        </label>
      </div>
      {error && <Problem error={error} />}
      {!data && !error && <Loading what="Loading…" />}
      {data && (
        <>
          <Sums groups={data.groups} waits={data.waits} />
          <Late waits={data.waits} />
          {groups.length > 0 ? <Files groups={groups} waits={data.waits} /> : <Nothing filtered={data.groups.length > 0} />}
        </>
      )}
    </div>
  )
}

function Sums(props: { groups: Group[]; waits: Waits }) {
  const rules = props.groups.flatMap((g) => g.rules)
  const failing = rules.filter((r) => r.health === 'err').length
  return (
    <Figures>
      <Figure name="Groups" value={count(props.groups.length)} note={props.waits.waiting.length ? `${count(props.waits.waiting.length)} wait` : undefined} />
      <Figure name="Rules" value={count(rules.length)} note={`${count(rules.filter((r) => r.type === 'alerting').length)} alerting`} />
      <Figure name="With errors" value={count(failing)} state={failing ? 'bad' : 'good'} />
      <Watermark waits={props.waits} />
    </Figures>
  )
}

function Nothing(props: { filtered: boolean }) {
  if (props.filtered) return <Empty>No rule matches the filter.</Empty>
  return (
    <Empty>
      <p>There are no rules.</p>
      <p class="note">Name files of rules in the configuration, and reload it:</p>
      <pre>{'rules:\n  files: [rules.yaml]'}</pre>
    </Empty>
  )
}

// shownFirst is how many groups are shown until a click on “Show all”.
const shownFirst = 50

// Files has one panel for each file or namespace.
function Files(props: { groups: Group[]; waits: Waits }) {
  const [whole, setWhole] = useState(false)
  const shown = whole ? props.groups : props.groups.slice(0, shownFirst)
  const files = [...new Set(shown.map((g) => g.file))]
  return (
    <>
      {files.map((file) => (
        <Panel key={file} title={file} class="file">
          {shown
            .filter((g) => g.file === file)
            .map((g) => (
              <GroupView key={g.name} group={g} waits={props.waits} />
            ))}
        </Panel>
      ))}
      {props.groups.length > shown.length && (
        <p class="all">
          <button type="button" onClick={() => setWhole(true)}>
            Show all {count(props.groups.length)} groups
          </button>
        </p>
      )}
    </>
  )
}

// evaluated returns a time of evaluation in Unix seconds, or undefined if there was none.
function evaluated(text: string): number | undefined {
  const at = Date.parse(text) / 1000
  return at > 0 ? at : undefined
}

const ago = (at: number | undefined) => (at === undefined ? 'never' : `${seconds(Math.max(0, Math.round(Date.now() / 1000 - at)))} ago`)

// usualWait is how many milliseconds a group of recordings may wait for its senders each time.
const usualWait = 5000

function GroupView(props: { group: Group; waits: Waits }) {
  const { group } = props
  const found = waitOf(group, props.waits)
  const wait = found && Date.now() - found.since_ms > usualWait ? found : undefined
  const last = evaluated(group.lastEvaluation)
  const next = last === undefined ? undefined : last + group.interval - Date.now() / 1000
  return (
    <section class="group" aria-label={`Group ${group.name}`}>
      <header>
        <h3>
          <Text text={group.name} />
        </h3>
        <p class="note">
          each {span(group.interval)} · evaluated {ago(last)}, took {seconds(group.evaluationTime)}
          {!wait && next !== undefined && <> · next {next < 1 ? 'now' : `in ${seconds(Math.round(next))}`}</>}
        </p>
      </header>
      {wait && (
        <p class={wait.stale ? 'hint warn' : 'hint'}>
          Waiting for data since {clock(wait.since_ms / 1000)}, to evaluate {dateTime(wait.slot_ms / 1000)}
          {wait.stale && ': stale, its alerts neither fire nor resolve'}
        </p>
      )}
      <Table
        label={`Rules of ${group.name}`}
        stacks
        rows={group.rules}
        columns={[
          { name: 'rule', cell: (r) => <RuleName rule={r} /> },
          { name: 'expression', class: 'code expression', cell: (r) => <Expression rule={r} /> },
          { name: 'state', class: 'nowrap', cell: (r) => <State rule={r} /> },
          { name: 'for', class: 'nowrap', cell: (r) => <Holds rule={r} /> },
          { name: 'health', cell: (r) => <Health rule={r} /> },
          { name: 'evaluated', number: true, cell: (r) => ago(evaluated(r.lastEvaluation)) },
          { name: 'took', number: true, cell: (r) => seconds(r.evaluationTime) },
        ]}
      />
    </section>
  )
}

function RuleName(props: { rule: Rule }) {
  const { type, name } = props.rule
  if (type === 'recording') return (
      <Explored expr={`{__name__=${JSON.stringify(name)}}`}>
        <Name text={name} />
      </Explored>
    )
  return (
    <Link page="alerts" params={new URLSearchParams({ q: `alertname=${name}` })} title="Show its alerts">
      <Name text={name} />
    </Link>
  )
}

// Expression leads to Explore. An error of the expression is below it.
function Expression(props: { rule: Rule }) {
  const { query, lastError } = props.rule
  return (
    <div>
      <Explored expr={query} />
      {lastError && (
        <p class="bad" role="alert">
          <Text text={lastError} />
        </p>
      )}
    </div>
  )
}

const tags = { firing: 'error', pending: 'warning', inactive: '' }

function State(props: { rule: Rule }) {
  const state = props.rule.state
  return <div>{state ? <span class={`tag ${tags[state]}`}>{state}</span> : <span class="note">recording</span>}</div>
}

function Holds(props: { rule: Rule }) {
  const { duration = 0, keepFiringFor = 0 } = props.rule
  return (
    <div>
      {duration > 0 ? span(duration) : '–'}
      {keepFiringFor > 0 && <span class="note"> kept {span(keepFiringFor)}</span>}
    </div>
  )
}

function Health(props: { rule: Rule }) {
  const { health } = props.rule
  if (health === 'ok') return <span class="good">ok</span>
  if (health === 'err') return <span class="bad">error</span>
  return <span class="note">not evaluated yet</span>
}
