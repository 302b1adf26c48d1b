// Records: slow traces, and recordings of moments when something was slow. The address
// selects what the page shows:
//
//   trace=ID             the spans of one slow trace
//   record=ID            the diagnosis of one recording
//   name=NAME&over=STAGE only traces with this name and stage in the list
import { DiagnosisView } from './diagnosis'
import { Link } from './parts'
import { Recordings } from './recordings'
import { usePlace } from './router'
import { Traces } from './traces'
import { TraceView } from './waterfall'

export function Records() {
  const { params } = usePlace()
  const trace = params.get('trace')
  const record = params.get('record')
  const list = new URLSearchParams(params)
  list.delete('trace')
  list.delete('record')
  const one = trace ?? record
  return (
    <div class="records">
      <div class="toolbar">
        <h1>Records</h1>
        {one === null && <p class="note">What was slow, and why</p>}
        {one !== null && (
          <>
            <Link page="records" params={list}>
              ← All records
            </Link>
            <p class="note">
              {trace !== null ? 'Trace' : 'Recording'} <code class="id">{one}</code>
            </p>
          </>
        )}
      </div>
      {trace !== null ? (
        <TraceView key={trace} id={trace} />
      ) : record !== null ? (
        <DiagnosisView key={record} id={record} />
      ) : (
        <>
          <Recordings />
          <Traces />
        </>
      )}
    </div>
  )
}
