// Series: how many there are, of which metric, label, tenant and sender, how they grow,
// and how far the limits are.
import { ask, usePoll } from './api'
import { bytes, clock, compact, count, percent } from './format'
import { Growth } from './growth'
import { Bar, Empty, Explored, Figure, Figures, Loading, Panel, Problem, Table } from './parts'
import { selector, seriesName } from './promql'

export interface TenantLimits {
  tenant: string
  series: number
  folded_samples: number
  refused_samples: number
  limits: { max_series: number; max_series_per_metric: number; max_new_series_per_minute: number; max_series_bytes: number }
}

export interface LimitsAnswer {
  tenant: string
  tenants: TenantLimits[]
}

interface Sender {
  address?: string
  process?: { pid: number; uid: number; command?: string }
  container?: string
}

interface Top {
  seconds: number
  series: number
  samples_per_second: number
  datagrams_per_second: number
  metrics: { metric?: string; kind?: string; series?: number; samples_per_second: number; share: number; others?: number }[]
  senders: (Sender & { datagrams_per_second: number; bytes_per_second: number; share: number; others?: number })[]
  newest_series: { time: number; metric: string; labels: Record<string, string>; sender?: Sender }[]
  labels: { metric: string; label: string; values: number; examples: string[] }[]
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
        <p class="note">What is new, what is many, and whose</p>
      </div>
      <State own={own} top={top.data} stored={stored.data} />
      {(limit.error ?? top.error) && <Problem error={(limit.error ?? top.error)!} />}
      {top.data && top.data.over_limits.length > 0 && <Over top={top.data} />}
      <div class="two">
        <div>
          <Metrics top={top.data} stored={stored.data} own={own} />
          <LabelValues top={top.data} stored={stored.data} />
        </div>
        <div>
          {limit.data && <Growth tenant={limit.data.tenant} />}
          <Senders top={top.data} />
          {limit.data && <Tenants all={limit.data.tenants} />}
          <Newest top={top.data} />
        </div>
      </div>
    </div>
  )
}

// fullness is how much of a limit is used; 0 is no limit.
const fullness = (n: number, limit: number) => (limit > 0 ? n / limit : 0)
const stateOf = (part: number) => (part >= 1 ? 'bad' : part >= 0.8 ? 'warn' : 'good')

function State(props: { own?: TenantLimits; top?: Top; stored?: Stored }) {
  const { own, top, stored } = props
  const largest = (top?.metrics ?? []).reduce((a, b) => ((b.series ?? 0) > (a?.series ?? 0) ? b : a), top?.metrics[0])
  const fullest = largest?.series ?? 0
  const part = own ? fullness(own.series, own.limits.max_series) : 0
  const metricPart = own ? fullness(fullest, own.limits.max_series_per_metric) : 0
  const lost = own ? own.folded_samples + own.refused_samples : 0
  return (
    <Figures>
      <Figure
        name="Series now"
        value={own ? count(own.series) : '–'}
        note={own && (own.limits.max_series ? `of ${count(own.limits.max_series)}, ${percent(part)}` : 'no limit')}
        state={own && stateOf(part)}
      />
      <Figure
        name="Largest metric"
        value={top ? count(fullest) : '–'}
        note={own && `${largest?.metric ?? 'none'}, ${own.limits.max_series_per_metric ? `at most ${count(own.limits.max_series_per_metric)}` : 'no limit'}`}
        state={own && top && stateOf(metricPart)}
      />
      <Figure name="Without a place" value={own ? count(lost) : '–'} note={own && `samples: ${count(own.folded_samples)} folded, ${count(own.refused_samples)} refused`} state={own && (lost > 0 ? 'warn' : 'good')} />
      <Figure name="Stored lately" value={stored ? count(stored.headStats.numSeries) : '–'} note="series in the stores' heads" />
    </Figures>
  )
}

function Over(props: { top: Top }) {
  return (
    <Panel title="Over a limit now" class="alarm" note="Known series go on; new ones have no place. The label is what to look at.">
      <Table
        label="Over a limit now"
        rows={props.top.over_limits}
        columns={[
          { name: 'metric', class: 'code', cell: (o) => o.metric },
          { name: 'label', class: 'code', cell: (o) => (o.label ? `${o.label}, about ${count(o.values ?? 0)} values` : '–') },
          { name: 'samples', number: true, cell: (o) => `${count(o.samples)} ${o.fate}` },
          { name: 'limit', class: 'code', cell: (o) => o.limit },
          { name: 'sender', cell: (o) => o.sender },
        ]}
      />
    </Panel>
  )
}

function Metrics(props: { top?: Top; stored?: Stored; own?: TenantLimits }) {
  const { top, stored, own } = props
  // Live series are the collector's; others came by remote write and OTLP, or are stored only.
  const live = new Map((top?.metrics ?? []).filter((m) => m.metric).map((m) => [m.metric!, m]))
  const kept = new Map((stored?.seriesCountByMetricName ?? []).map((m) => [m.name, m.value]))
  const rows = [...new Set([...live.keys(), ...kept.keys()])]
    .map((name) => ({ name, live: live.get(name), kept: kept.get(name) ?? 0 }))
    .sort((a, b) => Math.max(b.live?.series ?? 0, b.kept) - Math.max(a.live?.series ?? 0, a.kept) || a.name.localeCompare(b.name))
    .slice(0, 30)
  const most = Math.max(1, ...rows.map((r) => Math.max(r.live?.series ?? 0, r.kept)))
  const limit = own?.limits.max_series_per_metric ?? 0
  return (
    <Panel title="By metric" note="most series first">
      {!top && !stored && <Loading what="Counting takes a second or two…" />}
      {(top || stored) && rows.length === 0 && <Empty>No metric is there yet.</Empty>}
      {rows.length > 0 && (
        <Table
          label="By metric"
          rows={rows}
          columns={[
            { name: 'metric', class: 'code', cell: (r) => <Explored expr={`count(${selector({ __name__: r.name })})`}>{r.name}</Explored> },
            { name: 'kind', cell: (r) => (r.live?.kind ? <span class="tag">{r.live.kind}</span> : '') },
            {
              name: 'series',
              number: true,
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
            { name: 'stored', number: true, cell: (r) => count(r.kept) },
            { name: 'samples/s', number: true, cell: (r) => (r.live ? compact(r.live.samples_per_second) : '') },
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
      {!top && !stored && <Loading what="Looking at labels…" />}
      {top && top.labels.length > 0 && (
        <Table
          label="Labels of metrics"
          rows={top.labels.slice(0, 15)}
          columns={[
            { name: 'metric', class: 'code', cell: (l) => l.metric },
            { name: 'label', class: 'code', cell: (l) => l.label },
            { name: 'values', number: true, cell: (l) => count(l.values) },
            { name: 'such as', class: 'code clip', cell: (l) => l.examples.join(', ') },
          ]}
        />
      )}
      {stored && (
        <Table
          label="Labels of all stored series"
          rows={stored.labelValueCountByLabelName.slice(0, 10)}
          columns={[
            { name: 'label, in all that is stored lately', class: 'code', cell: (l) => l.name },
            { name: 'values', number: true, cell: (l) => count(l.value) },
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

function Senders(props: { top?: Top }) {
  const { top } = props
  // Whose new series these are: of the newest that the server remembers.
  const fresh = new Map<string, number>()
  for (const n of top?.newest_series ?? []) fresh.set(senderName(n.sender), (fresh.get(senderName(n.sender)) ?? 0) + 1)
  return (
    <Panel title="By sender" note="of DogStatsD, now">
      {!top && <Loading what="Watching senders takes a second or two…" />}
      {top && top.senders.length === 0 && <Empty>Nobody sends DogStatsD at the moment.</Empty>}
      {top && top.senders.length > 0 && (
        <Table
          label="By sender"
          rows={top.senders}
          columns={[
            { name: 'sender', class: 'code', cell: (s) => (s.others ? `${count(s.others)} or more others` : senderName(s)) },
            { name: 'datagrams/s', number: true, cell: (s) => compact(s.datagrams_per_second) },
            { name: 'bytes/s', number: true, cell: (s) => bytes(s.bytes_per_second) },
            { name: 'share', number: true, cell: (s) => percent(s.share) },
            { name: 'of the newest series', number: true, cell: (s) => (s.others ? '' : count(fresh.get(senderName(s)) ?? 0)) },
          ]}
        />
      )}
    </Panel>
  )
}

function Newest(props: { top?: Top }) {
  const { top } = props
  return (
    <Panel title="Newest series">
      {!top && <Loading what="Asking…" />}
      {top && top.newest_series.length === 0 && <Empty>None since the server started.</Empty>}
      {top && top.newest_series.length > 0 && (
        <Table
          label="Newest series"
          rows={top.newest_series.slice(0, 12)}
          columns={[
            { name: 'since', cell: (n) => clock(n.time), class: 'nowrap' },
            { name: 'series', class: 'code', cell: (n) => seriesName({ __name__: n.metric, ...n.labels }) },
            { name: 'sender', cell: (n) => senderName(n.sender) },
          ]}
        />
      )}
    </Panel>
  )
}

export function Tenants(props: { all: TenantLimits[] }) {
  const limit = (n: number) => (n ? count(n) : 'no limit')
  return (
    <Panel title="By tenant" note="series by DogStatsD, and their limits">
      <Table
        label="By tenant"
        rows={props.all}
        columns={[
          { name: 'tenant', class: 'code', cell: (t) => t.tenant },
          {
            name: 'series',
            number: true,
            cell: (t) => (
              <>
                <Bar part={fullness(t.series, t.limits.max_series)} state={stateOf(fullness(t.series, t.limits.max_series))} />
                <span class="counted">{count(t.series)}</span>
              </>
            ),
          },
          { name: 'at most', number: true, cell: (t) => limit(t.limits.max_series) },
          { name: 'a metric', number: true, cell: (t) => limit(t.limits.max_series_per_metric) },
          { name: 'new a minute', number: true, cell: (t) => limit(t.limits.max_new_series_per_minute) },
          { name: 'folded', number: true, cell: (t) => count(t.folded_samples) },
          { name: 'refused', number: true, cell: (t) => count(t.refused_samples) },
        ]}
      />
    </Panel>
  )
}
