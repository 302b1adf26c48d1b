// Series: how many there are by metric, label, tenant and sender, how their number grows,
// and how close it is to the limits. DogStatsD has its own limits; remote write and OTLP
// share theirs.
import { ask, usePoll } from './api'
import { Cardinality } from './cardinality'
import { bytes, clock, compact, count, percent } from './format'
import { Growth } from './growth'
import { Bar, Empty, Explored, Figure, Figures, Loading, Name, Panel, Problem, Table } from './parts'
import { selector, seriesName } from './promql'

export interface TenantLimits {
  tenant: string
  series: number // series of DogStatsD; so are the fields up to limits
  folded_samples: number
  refused_samples: number
  limits: { max_series: number; max_series_per_metric: number; max_new_series_per_minute: number; max_series_bytes: number }
  distributor?: DistributorLimits // undefined if this process has no stores
}

// DistributorLimits are the limits of remote write and OTLP, and how much of them is used.
interface DistributorLimits {
  series: number
  totals: number // series of totals, of OTLP's deltas and of DogStatsD; max_series bounds them, too
  refused_samples: number
  delayed_requests: number
  sender?: RequestSender
  limits: { rate: number; max_series: number }
}

interface RequestSender {
  input: string
  name?: string // of its token
  address?: string
  user_agent?: string
  requests_per_second: number
  samples_per_second: number
  bytes_per_second: number
}

export interface LimitsAnswer {
  tenant: string
  tenants: TenantLimits[]
  node?: string // in a cluster, the node that answers
  nodes?: { name: string; error?: string }[]
}

export interface Sender {
  address?: string
  process?: { pid: number; uid: number; command?: string }
  container?: string
}

interface Top {
  node?: string
  seconds: number
  series: number
  samples_per_second: number
  datagrams_per_second: number
  metrics: { metric?: string; kind?: string; series?: number; samples_per_second: number; share: number; others?: number }[]
  senders: (Sender & { datagrams_per_second: number; bytes_per_second: number; share: number; others?: number })[]
  newest_series: { time: number; metric: string; labels: Record<string, string>; sender?: Sender }[]
  labels: { metric: string; label: string; values: number; examples: string[] }[]
  request_senders: RequestSender[]
  request_newcomers: { metric: string; new_series: number; refused_series: number; label?: string; values?: number; sender?: string }[]
  malformed: (Sender & { malformed_per_second: number; share: number; reason?: string; example?: string })[]
  over_limits: { metric: string; kind: string; limit: string; fate: string; samples: number; label?: string; values?: number; sender: string }[]
}

interface Named {
  name: string
  value: number
}

interface Stored {
  headStats: { numSeries: number }
  seriesCountByMetricName: Named[]
  labelValueCountByLabelName: Named[]
}

export const limits = async (signal: AbortSignal) => (await ask<LimitsAnswer>('api/v1/status/limits', {}, signal)).data

export function Series() {
  const top = usePoll(async (s) => (await ask<Top>('api/v1/status/top', { limit: '50' }, s)).data, 3000, [])
  const limit = usePoll(limits, 3000, [])
  const stored = usePoll(async (s) => (await ask<Stored>('api/v1/status/tsdb', { limit: '50' }, s)).data, 15_000, [])
  const own = limit.data?.tenants.find((t) => t.tenant === limit.data!.tenant)
  return (
    <div class="series">
      <div class="toolbar">
        <h1>Series</h1>
        <p class="note">
          How many, how many are new, and who sends them
          {top.data?.node && `. Limits and stored series are of the cluster, metrics and senders of node ${top.data.node}`}
        </p>
      </div>
      {limit.data?.nodes?.filter((n) => n.error).map((n) => (
        <p key={n.name} class="hint warn">
          The use of limits may be short: node {n.name} is missing: {n.error}
        </p>
      ))}
      <State own={own} top={top.data} stored={stored.data} />
      {(limit.error ?? top.error) && <Problem error={(limit.error ?? top.error)!} />}
      {top.data && <Over top={top.data} />}
      {top.data && <Malformed top={top.data} />}
      {limit.data && <Tenants all={limit.data.tenants} own={limit.data.tenant} sender={top.data?.senders[0] && senderName(top.data.senders[0])} />}
      <div class="two">
        <div>
          <Metrics top={top.data} stored={stored.data} own={own} />
          <LabelValues top={top.data} stored={stored.data} />
          <Cardinality />
        </div>
        <div>
          {limit.data && <Growth tenant={limit.data.tenant} />}
          <Senders top={top.data} />
          <Newcomers top={top.data} />
          <Newest top={top.data} />
        </div>
      </div>
    </div>
  )
}

// fullness is the used fraction of a limit, or 0 if there is no limit.
const fullness = (n: number, limit: number) => (limit > 0 ? n / limit : 0)
const ofLimit = (n: number, limit: number) => (limit > 0 ? `series of ${count(limit)}, ${percent(n / limit)}` : 'series, no limit')
const stateOf = (part: number) => (part >= 1 ? 'bad' : part >= 0.8 ? 'warn' : 'good')

function State(props: { own?: TenantLimits; top?: Top; stored?: Stored }) {
  const { own, top, stored } = props
  const largest = (top?.metrics ?? []).reduce((a, b) => ((b.series ?? 0) > (a?.series ?? 0) ? b : a), top?.metrics[0])
  const fullest = largest?.series ?? 0
  const part = own ? fullness(own.series, own.limits.max_series) : 0
  const metricPart = own ? fullness(fullest, own.limits.max_series_per_metric) : 0
  const distributor = own?.distributor
  const refused = own ? own.refused_samples + (distributor?.refused_samples ?? 0) : 0
  const lost = own ? own.folded_samples + refused : 0
  return (
    <Figures>
      <Figure
        name="By DogStatsD"
        value={own ? count(own.series) : '–'}
        note={own && ofLimit(own.series, own.limits.max_series)}
        state={own && stateOf(part)}
      />
      <Figure
        name="By remote write and OTLP"
        value={distributor ? count(distributor.series) : '–'}
        note={distributor ? ofLimit(distributor.series, distributor.limits.max_series) : own && 'this process has no stores'}
        state={distributor && stateOf(fullness(distributor.series, distributor.limits.max_series))}
      />
      <Figure
        name="Largest metric of DogStatsD"
        value={top ? count(fullest) : '–'}
        note={own && `${largest?.metric ?? 'none'}, ${own.limits.max_series_per_metric ? `at most ${count(own.limits.max_series_per_metric)}` : 'no limit'}`}
        state={own && top && stateOf(metricPart)}
      />
      <Figure
        name="Over a limit"
        value={own ? count(lost) : '–'}
        note={own && `samples: ${count(own.folded_samples)} folded, ${count(refused)} refused`}
        state={own && (lost > 0 ? 'warn' : 'good')}
      />
      <Figure name="Recently stored" value={stored ? count(stored.headStats.numSeries) : '–'} note="series in the stores' heads" />
    </Figures>
  )
}

function Over(props: { top: Top }) {
  const { over_limits, request_newcomers } = props.top
  const rows = [
    ...over_limits.map((o) => ({ ...o, input: 'DogStatsD', lost: `${count(o.samples)} samples ${o.fate}` })),
    ...request_newcomers
      .filter((m) => m.refused_series > 0)
      .map((m) => ({ ...m, input: 'remote write, OTLP', limit: 'distributor.max_series', lost: `${count(m.refused_series)} series refused` })),
  ]
  if (rows.length === 0) return null
  return (
    <Panel title="Over a limit now" class="alarm" note="Known series continue. New ones are folded or refused: look at the label with many values.">
      <Table
        label="Over a limit now"
        stacks
        rows={rows}
        columns={[
          { name: 'metric', class: 'code', cell: (o) => <Name text={o.metric} /> },
          { name: 'label', class: 'code', cell: (o) => valuesOf(o) },
          { name: 'effect', number: true, cell: (o) => o.lost },
          { name: 'limit', class: 'code', cell: (o) => <Name text={o.limit} /> },
          { name: 'input', cell: (o) => o.input },
          { name: 'sender', class: 'code', cell: (o) => o.sender ?? 'unknown' },
        ]}
      />
    </Panel>
  )
}

const valuesOf = (m: { label?: string; values?: number }) => (m.label ? `${m.label}, about ${count(m.values ?? 0)} values` : '–')

function Malformed(props: { top: Top }) {
  const rows = props.top.malformed
  if (rows.length === 0) return null
  return (
    <Panel title="Malformed lines of DogStatsD now" class="alarm" note="The other lines of the same datagrams are counted. freshet explain shows what is wrong with a line.">
      <Table
        label="Malformed lines of DogStatsD now"
        stacks
        rows={rows}
        columns={[
          { name: 'sender', class: 'code', cell: (m) => senderName(m) },
          { name: 'lines/s', number: true, sort: (m) => m.malformed_per_second, cell: (m) => compact(m.malformed_per_second) },
          { name: 'share of its lines', number: true, sort: (m) => m.share, cell: (m) => percent(m.share) },
          { name: 'reason', class: 'code', cell: (m) => m.reason ?? '' },
          { name: 'example', class: 'code', cell: (m) => m.example ?? '' },
        ]}
      />
    </Panel>
  )
}

function Metrics(props: { top?: Top; stored?: Stored; own?: TenantLimits }) {
  const { top, stored, own } = props
  // Live series are in the collector. All others came by remote write or OTLP, or are only stored.
  const live = new Map((top?.metrics ?? []).filter((m) => m.metric).map((m) => [m.metric!, m]))
  const kept = new Map((stored?.seriesCountByMetricName ?? []).map((m) => [m.name, m.value]))
  const rows = [...new Set([...live.keys(), ...kept.keys()])]
    .map((name) => ({ name, live: live.get(name), kept: kept.get(name) ?? 0 }))
    .sort((a, b) => Math.max(b.live?.series ?? 0, b.kept) - Math.max(a.live?.series ?? 0, a.kept) || a.name.localeCompare(b.name))
    .slice(0, 30)
  const most = Math.max(1, ...rows.map((r) => Math.max(r.live?.series ?? 0, r.kept)))
  const limit = own?.limits.max_series_per_metric ?? 0
  return (
    <Panel title="By metric" note="most series first; “stored” counts all inputs, the other columns only DogStatsD">
      {!top && !stored && <Loading what="Counting. This takes a second or two…" />}
      {(top || stored) && rows.length === 0 && <Empty>No metrics yet. Explore shows how to send one.</Empty>}
      {rows.length > 0 && (
        <Table
          label="By metric"
          rows={rows}
          columns={[
            { name: 'metric', class: 'code', sort: (r) => r.name, cell: (r) => <Explored expr={`count(${selector({ __name__: r.name })})`}><Name text={r.name} /></Explored> },
            { name: 'kind', cell: (r) => (r.live?.kind ? <span class="tag">{r.live.kind}</span> : '') },
            {
              name: 'series',
              number: true,
              sort: (r) => r.live?.series,
              cell: (r) => {
                const n = r.live?.series ?? 0
                return (
                  <>
                    <Bar part={Math.max(n, r.kept) / most} state={n > 0 && limit > 0 ? stateOf(fullness(n, limit)) : ''} />
                    <span class="counted">{r.live ? count(n) : '–'}</span>
                  </>
                )
              },
            },
            { name: 'stored', number: true, sort: (r) => r.kept, cell: (r) => count(r.kept) },
            { name: 'samples/s', number: true, sort: (r) => r.live?.samples_per_second, cell: (r) => (r.live ? compact(r.live.samples_per_second) : '') },
          ]}
        />
      )}
    </Panel>
  )
}

function LabelValues(props: { top?: Top; stored?: Stored }) {
  const { top, stored } = props
  return (
    <Panel title="By label" note="most values first">
      {!top && !stored && <Loading what="Counting label values…" />}
      {top && top.labels.length === 0 && !stored && <Empty>No label has more than one value yet.</Empty>}
      {top && top.labels.length > 0 && (
        <Table
          label="Labels of metrics"
          rows={top.labels.slice(0, 15)}
          columns={[
            { name: 'DogStatsD metric', class: 'code', sort: (l) => l.metric, cell: (l) => <Name text={l.metric} /> },
            { name: 'label', class: 'code', sort: (l) => l.label, cell: (l) => l.label },
            { name: 'values', number: true, sort: (l) => l.values, cell: (l) => count(l.values) },
            { name: 'examples', class: 'code clip', cell: (l) => l.examples.join(', ') },
          ]}
        />
      )}
      {stored && (
        <Table
          label="Labels of all stored series"
          rows={stored.labelValueCountByLabelName.slice(0, 10)}
          columns={[
            { name: 'label, in all recently stored series', class: 'code', sort: (l) => l.name, cell: (l) => l.name },
            { name: 'values', number: true, sort: (l) => l.value, cell: (l) => count(l.value) },
          ]}
        />
      )}
    </Panel>
  )
}

export function senderName(s: Sender | undefined): string {
  const parts = []
  if (s?.address) parts.push(s.address)
  if (s?.process) parts.push(`pid ${s.process.pid}, uid ${s.process.uid}${s.process.command ? ', ' + s.process.command : ''}`)
  if (s?.container) parts.push(`container ${s.container.slice(0, 12)}`)
  return parts.join(', ') || 'unknown'
}

const requestSenderName = (s: RequestSender) => [s.name, s.address, s.user_agent].filter(Boolean).join(', ') || 'unknown'
export const inputName = (input: string) => ({ otlp: 'OTLP', dogstatsd: 'DogStatsD' })[input] ?? input.replaceAll('_', ' ')

function Senders(props: { top?: Top }) {
  const { top } = props
  // Counts how many of the newest series each sender sent.
  const fresh = new Map<string, number>()
  for (const n of top?.newest_series ?? []) fresh.set(senderName(n.sender), (fresh.get(senderName(n.sender)) ?? 0) + 1)
  return (
    <Panel title="By sender" note="in the last ten seconds">
      {!top && <Loading what="Watching senders. This takes a second or two…" />}
      {top && top.senders.length === 0 && <Empty>No DogStatsD arrived in the last ten seconds.</Empty>}
      {top && top.senders.length > 0 && (
        <Table
          label="By sender of DogStatsD"
          stacks
          rows={top.senders}
          columns={[
            { name: 'DogStatsD sender', class: 'code', cell: (s) => (s.others ? `at least ${count(s.others)} others` : senderName(s)) },
            { name: 'datagrams/s', number: true, sort: (s) => s.datagrams_per_second, cell: (s) => compact(s.datagrams_per_second) },
            { name: 'bytes/s', number: true, sort: (s) => s.bytes_per_second, cell: (s) => bytes(s.bytes_per_second) },
            { name: 'share', number: true, sort: (s) => s.share, cell: (s) => percent(s.share) },
            { name: 'newest series', number: true, cell: (s) => (s.others ? '' : count(fresh.get(senderName(s)) ?? 0)) },
          ]}
        />
      )}
      {top && top.request_senders.length === 0 && <Empty>No remote write or OTLP arrived in the last ten seconds.</Empty>}
      {top && top.request_senders.length > 0 && (
        <Table
          label="By sender of remote write and OTLP"
          stacks
          rows={top.request_senders}
          columns={[
            { name: 'sender of requests', class: 'code', cell: requestSenderName },
            { name: 'input', cell: (s) => inputName(s.input) },
            { name: 'requests/s', number: true, sort: (s) => s.requests_per_second, cell: (s) => compact(s.requests_per_second) },
            { name: 'samples/s', number: true, sort: (s) => s.samples_per_second, cell: (s) => compact(s.samples_per_second) },
            { name: 'bytes/s', number: true, sort: (s) => s.bytes_per_second, cell: (s) => bytes(s.bytes_per_second) },
          ]}
        />
      )}
    </Panel>
  )
}

function Newcomers(props: { top?: Top }) {
  const { top } = props
  return (
    <Panel title="New series by remote write and OTLP" note="in the last four minutes">
      {!top && <Loading what="Loading…" />}
      {top && top.request_newcomers.length === 0 && <Empty>No new series in this time.</Empty>}
      {top && top.request_newcomers.length > 0 && (
        <Table
          label="New series by remote write and OTLP"
          rows={top.request_newcomers.slice(0, 12)}
          columns={[
            { name: 'metric', class: 'code', cell: (m) => <Name text={m.metric} /> },
            { name: 'new series', number: true, sort: (m) => m.new_series, cell: (m) => count(m.new_series) },
            { name: 'label', class: 'code', cell: (m) => valuesOf(m) },
            { name: 'sender', class: 'code', cell: (m) => m.sender ?? 'unknown' },
          ]}
        />
      )}
    </Panel>
  )
}

function Newest(props: { top?: Top }) {
  const { top } = props
  return (
    <Panel title="Newest series of DogStatsD">
      {!top && <Loading what="Loading…" />}
      {top && top.newest_series.length === 0 && <Empty>No new series since the server started.</Empty>}
      {top && top.newest_series.length > 0 && (
        <Table
          label="Newest series"
          rows={top.newest_series.slice(0, 12)}
          columns={[
            { name: 'first seen', cell: (n) => clock(n.time), class: 'nowrap' },
            { name: 'series', class: 'code', cell: (n) => seriesName({ __name__: n.metric, ...n.labels }) },
            { name: 'sender', class: 'code', cell: (n) => senderName(n.sender) },
          ]}
        />
      )}
    </Panel>
  )
}

// Entry is one input of a tenant. A limit that this input does not have is undefined.
interface Entry {
  tenant: string
  name: string
  series: number
  most: number
  ofMetric?: number
  newAMinute?: number
  rate?: number
  lost: string
  sender?: string
}

function entriesOf(t: TenantLimits, sender?: string): Entry[] {
  const { tenant, distributor } = t
  const dogstatsd = {
    tenant, name: 'DogStatsD', series: t.series, most: t.limits.max_series, ofMetric: t.limits.max_series_per_metric,
    newAMinute: t.limits.max_new_series_per_minute, lost: `${count(t.folded_samples)} samples folded, ${count(t.refused_samples)} refused`, sender,
  }
  if (!distributor) return [dogstatsd]
  const lost = `${count(distributor.refused_samples)} samples refused` + (distributor.delayed_requests ? `, ${count(distributor.delayed_requests)} requests told to retry later` : '')
  return [
    dogstatsd,
    {
      tenant, name: 'remote write, OTLP', series: distributor.series, most: distributor.limits.max_series, rate: distributor.limits.rate, lost,
      sender: distributor.sender && requestSenderName(distributor.sender),
    },
    { tenant, name: 'totals of counters and OTLP deltas', series: distributor.totals, most: distributor.limits.max_series, lost: '' },
  ]
}

// Tenants shows a row for each input of each tenant. `own` is the user's tenant, and `sender` its
// busiest DogStatsD sender; the senders of other tenants are not known.
export function Tenants(props: { all: TenantLimits[]; own?: string; sender?: string }) {
  const limit = (n: number | undefined) => (n === undefined ? '' : n ? count(n) : 'no limit')
  return (
    <Panel title="By tenant" note="series and limits of each input">
      <Table
        label="By tenant"
        stacks
        rows={props.all.flatMap((t) => entriesOf(t, t.tenant === props.own ? props.sender : undefined))}
        columns={[
          { name: 'tenant', class: 'code', sort: (e) => e.tenant, cell: (e) => e.tenant },
          { name: 'input', class: 'nowrap', cell: (e) => e.name },
          {
            name: 'series',
            number: true,
            sort: (e) => e.series,
            cell: (e) => (
              <>
                <Bar part={fullness(e.series, e.most)} state={stateOf(fullness(e.series, e.most))} />
                <span class="counted">{count(e.series)}</span>
              </>
            ),
          },
          { name: 'limit', number: true, sort: (e) => e.most || undefined, cell: (e) => limit(e.most) },
          { name: 'per metric', number: true, cell: (e) => limit(e.ofMetric) },
          { name: 'new/min', number: true, cell: (e) => limit(e.newAMinute) },
          { name: 'samples/s', number: true, cell: (e) => limit(e.rate) },
          { name: 'over a limit', number: true, cell: (e) => e.lost },
          { name: 'busiest sender', class: 'nowrap', cell: (e) => e.sender ?? '' },
        ]}
      />
    </Panel>
  )
}
