// Alerts: which are pending or fire, and when each of them was in a chosen range of time.
//
//   q=TEXT               only alerts with this text in a label
//   state=firing         only alerts in this state
//   range=1h             of the timeline, up to now; or from=UNIX&to=UNIX
import { useState } from 'preact/hooks'
import { usePoll } from './api'
import { count, dateTime, exact, span } from './format'
import { Choice, Empty, Explored, Figure, Figures, Loading, Name, Panel, Problem, Table, Text } from './parts'
import type { Labels } from './promql'
import { go, usePlace } from './router'
import { alertmanager, rulesOf, silenceForm, waitOf, type Alert, type Rule, type Rules, type WaitingGroup } from './rulesapi'
import { Timelines } from './timelines'
import { Late, Watermark } from './waits'

// Active is an alert that is pending or fires, with its rule.
interface Active {
  alert: Alert
  rule: Rule
  wait?: WaitingGroup // its group waits
}

const states = [['', 'All'], ['firing', 'Firing'], ['pending', 'Pending']] as const

export function Alerts() {
  const { params } = usePlace()
  const { data, error } = usePoll((signal) => rulesOf({ type: 'alert' }, signal), 5000, [])
  const { data: silences } = usePoll(alertmanager, 60_000, [])
  const text = params.get('q') ?? ''
  const state = states.find(([s]) => s === params.get('state'))?.[0] ?? ''
  const change = (key: string, value: string) => {
    const next = new URLSearchParams(params)
    if (value) next.set(key, value)
    else next.delete(key)
    go('alerts', next, true)
  }
  const all = data ? activeIn(data) : []
  const shown = all.filter(({ alert }) => (!state || alert.state === state) && matches(alert.labels, text))
  return (
    <div class="alerts">
      <div class="toolbar">
        <h1>Alerts</h1>
        <Choice label="State" value={state} options={states} onChange={(s) => change('state', s)} />
        <label class="field inline">
          Filter
          <input type="search" data-slash value={text} onInput={(e) => change('q', e.currentTarget.value)} />
        </label>
      </div>
      {error && <Problem error={error} />}
      {!data && !error && <Loading what="Loading…" />}
      {data && (
        <>
          <Sums rules={data} active={all} />
          <Late waits={data.waits} />
          <Panel title="Active alerts" note="pending or firing now">
            {shown.length > 0 ? <List active={shown} silences={silences} /> : <Nothing rules={data} active={all} />}
          </Panel>
          <Timelines rules={data} wanted={(labels) => matches(labels, text)} />
        </>
      )}
    </div>
  )
}

// matches reports whether a label has a text, in any case.
const matches = (labels: Labels, text: string) => Object.entries(labels).some(([name, value]) => `${name}=${value}`.toLowerCase().includes(text.toLowerCase()))

// activeIn returns the active alerts: firing ones first, and of each state the oldest first.
function activeIn(rules: Rules): Active[] {
  const all = rules.groups.flatMap((group) => {
    const wait = waitOf(group, rules.waits)
    return group.rules.flatMap((rule) => (rule.alerts ?? []).map((alert) => ({ alert, rule, wait })))
  })
  return all.sort((a, b) => a.alert.state.localeCompare(b.alert.state) || Date.parse(a.alert.activeAt) - Date.parse(b.alert.activeAt))
}

function Sums(props: { rules: Rules; active: Active[] }) {
  const { rules, active } = props
  const alerting = rules.groups.flatMap((g) => g.rules)
  const failing = alerting.filter((r) => r.health === 'err').length
  const firing = active.filter((a) => a.alert.state === 'firing').length
  const pending = active.length - firing
  return (
    <Figures>
      <Figure name="Firing" value={count(firing)} state={firing ? 'bad' : 'good'} />
      <Figure name="Pending" value={count(pending)} state={pending ? 'warn' : undefined} />
      <Figure name="Alerting rules" value={count(alerting.length)} note={failing ? `${count(failing)} cannot be evaluated` : undefined} state={failing ? 'bad' : undefined} />
      <Watermark waits={rules.waits} />
    </Figures>
  )
}

function Nothing(props: { rules: Rules; active: Active[] }) {
  if (props.active.length > 0) return <Empty>No alert matches the filter.</Empty>
  if (props.rules.groups.length > 0) return <Empty>No alert is pending or fires.</Empty>
  return (
    <Empty>
      <p>There are no alerting rules.</p>
      <p class="note">Name files of rules in the configuration, and reload it:</p>
      <pre>{'rules:\n  files: [rules.yaml]'}</pre>
    </Empty>
  )
}

// shownFirst is how many alerts are shown until a click on “Show all”.
const shownFirst = 100

function List(props: { active: Active[]; silences?: string }) {
  const [whole, setWhole] = useState(false)
  const { active, silences } = props
  return (
    <>
      <Table
        label="Active alerts"
        stacks
        rows={whole ? active : active.slice(0, shownFirst)}
        columns={[
          { name: 'state', cell: (a) => <State active={a} /> },
          { name: 'alert', cell: ({ alert }) => <Name text={alert.labels.alertname ?? ''} /> },
          { name: 'labels', class: 'code', cell: ({ alert }) => <LabelList labels={alert.labels} /> },
          { name: 'active since', cell: ({ alert }) => <Since text={alert.activeAt} /> },
          { name: 'value', number: true, cell: ({ alert }) => <span title={alert.value}>{exact(Number(alert.value))}</span> },
          { name: 'annotations', class: 'annotations', cell: ({ alert }) => <Annotations of={alert.annotations} /> },
          {
            name: 'go to',
            class: 'nowrap',
            cell: ({ alert, rule }) => (
              <div>
                <Explored expr={rule.query}>Explore</Explored>
                {silences && (
                  <>
                    {' '}
                    <a href={silenceForm(silences, alert.labels)} target="_blank" rel="noreferrer" title={`Silence it in the Alertmanager ${silences}`}>
                      Silence
                    </a>
                  </>
                )}
              </div>
            ),
          },
        ]}
      />
      {active.length > shownFirst && !whole && (
        <p class="all">
          <button type="button" onClick={() => setWhole(true)}>
            Show all {count(active.length)}
          </button>
        </p>
      )}
    </>
  )
}

function State(props: { active: Active }) {
  const { alert, wait } = props.active
  return (
    <div>
      <span class={`tag ${alert.state === 'firing' ? 'error' : 'warning'}`}>{alert.state}</span>
      {alert.keepFiringSince && <span class="note"> kept since {dateTime(Date.parse(alert.keepFiringSince) / 1000)}</span>}
      {wait?.stale && <span class="note"> as of {dateTime(wait.slot_ms / 1000)}</span>}
    </div>
  )
}

function LabelList(props: { labels: Labels }) {
  return (
    <ul>
      {Object.entries(props.labels)
        .filter(([name]) => name !== 'alertname')
        .map(([name, value]) => (
          <li key={name}>
            <Text text={`${name}=${value}`} />
          </li>
        ))}
    </ul>
  )
}

function Since(props: { text: string }) {
  const at = Date.parse(props.text) / 1000
  return (
    <div>
      <span class="nowrap">{dateTime(at)}</span> <span class="note nowrap">{span(Math.max(0, Date.now() / 1000 - at))} ago</span>
    </div>
  )
}

function Annotations(props: { of: Labels }) {
  return (
    <dl>
      {Object.entries(props.of).map(([name, value]) => (
        <div key={name}>
          <dt class="note">{name}</dt>
          <dd>
            <Annotation text={value} />
          </dd>
        </div>
      ))}
    </dl>
  )
}

// Annotation shows an annotation as text. One that is an address, such as runbook_url, is a link.
function Annotation(props: { text: string }) {
  if (!/^https?:\/\/\S+$/.test(props.text)) return <Text text={props.text} />
  return (
    <a href={props.text} target="_blank" rel="noreferrer">
      {props.text}
    </a>
  )
}
