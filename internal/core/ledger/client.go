package ledger

import "bytes"

// ClientCount is a count that DogStatsD clients report about themselves. A sample that a client
// dropped never reached a socket, so it is in no other book.
type ClientCount uint8

const (
	MetricsSent ClientCount = iota // handed to the client by the application, before sampling and aggregation
	EventsSent
	ServiceChecksSent
	MetricsDroppedOnReceive // the client's input channel was full
	PacketsSent
	PacketsDropped       // the sum of the next two counts
	PacketsDroppedQueue  // the client's queue was full
	PacketsDroppedWriter // the socket did not take the packet
	BytesSent
	BytesDropped
	BytesDroppedQueue
	BytesDroppedWriter
	numClientCounts
)

// clientPrefix precedes the name of each count on the wire.
const clientPrefix = "datadog.dogstatsd.client."

// clientNames are the counts' names after the prefix.
var clientNames = [numClientCounts]string{
	"metrics", "events", "service_checks", "metric_dropped_on_receive",
	"packets_sent", "packets_dropped", "packets_dropped_queue", "packets_dropped_writer",
	"bytes_sent", "bytes_dropped", "bytes_dropped_queue", "bytes_dropped_writer",
}

// String returns the name that clients give the count, without the prefix.
func (c ClientCount) String() string { return clientNames[c] }

// ClientCountOf returns the count that has this raw DogStatsD name. Other telemetry of clients,
// such as metrics_by_type, only splits these counts.
func ClientCountOf(name []byte) (ClientCount, bool) {
	rest, ok := bytes.CutPrefix(name, []byte(clientPrefix))
	if !ok {
		return 0, false
	}
	for c, known := range clientNames {
		if string(rest) == known {
			return ClientCount(c), true
		}
	}
	return 0, false
}

// Client adds to the counts that the clients of a tenant report.
func (l *Ledger) Client(tenant string, count ClientCount, n float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.of(tenant)
	if t.clients == nil {
		t.clients = new([numClientCounts]float64)
	}
	t.clients[count] += n
}
