// Events in the time range that Explore shows.
import { count, dateTime } from './format'
import { Empty, Panel, Table, Text, type Column } from './parts'

// EventAnswer is an event as /api/v1/events has it.
export interface EventAnswer {
  id: string
  time: number
  title: string
  text: string
  tags: string[]
  host: string
  alert_type: string
}

export function Events(props: { events: EventAnswer[]; error?: string }) {
  const columns: Column<EventAnswer>[] = [
    { name: 'time', cell: (e) => dateTime(e.time), class: 'nowrap' },
    { name: 'type', cell: (e) => <span class={'tag ' + e.alert_type}>{e.alert_type || 'info'}</span> },
    { name: 'event', cell: (e) => <b><Text text={e.title} /></b> },
    { name: 'text', cell: (e) => e.text },
    { name: 'tags', cell: (e) => e.tags.join(', '), class: 'code' },
  ]
  return (
    <Panel title="Events" note={props.events.length ? `${count(props.events.length)} in this time range` : undefined}>
      {props.error ? <p class="bad">{props.error}</p> : props.events.length ? <Table label="Events" stacks columns={columns} rows={props.events} /> : <Empty>No events in this time range. DogStatsD clients send them as _e{'{…}'}:title|text.</Empty>}
    </Panel>
  )
}
