// Records: what the server kept of the moments when something was slow. The page has
// their place, and leads to what answers for them.
import { Empty, Panel } from './parts'

export function Records() {
  return (
    <div class="records">
      <div class="toolbar">
        <h1>Records</h1>
        <p class="note">Slow traces, recordings, diagnosis</p>
      </div>
      <Panel title="Slow traces">
        <Empty>
          <p>The page does not draw traces yet.</p>
          <p class="note">
            Those that the server keeps are at <a href="api/v1/status/traces">api/v1/status/traces</a>.
          </p>
        </Empty>
      </Panel>
      <Panel title="Recordings">
        <Empty>
          <p>The page does not list recordings yet.</p>
          <p class="note">
            Those that the server made are at <a href="api/v1/status/records">api/v1/status/records</a>, on its own machine.
          </p>
        </Empty>
      </Panel>
    </div>
  )
}
