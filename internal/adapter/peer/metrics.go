package peer

import "github.com/prometheus/client_golang/prometheus"

// Names of the connections to another node, in metrics.
const (
	entries = "entries" // messages with entries, and the answers to them
	urgent  = "urgent"  // votes, heartbeats, barriers, and calls
)

// Reasons for refusing another process or its messages.
const (
	refusedHandshake  = "handshake"   // it does not support TLS 1.3, or refused our certificate
	refusedCert       = "certificate" // its certificate does not belong to this cluster
	refusedPermission = "permission"  // a collector called a method for nodes
	refusedName       = "name"        // the hello has another name than the certificate
	refusedCluster    = "cluster"
	refusedEpoch      = "epoch"
	refusedGroup      = "group"
	refusedMember     = "member" // the hello is for another member, or names a wrong member for the sender
	refusedVersion    = "version"
	refusedForged     = "forged" // the members of a message are not those of the hello
	refusedMalformed  = "malformed"

	refusedConnections = "connections" // too many are open
)

// Reasons for dropping a message.
const (
	droppedFull    = "full"    // the queue for the node is full
	droppedLate    = "late"    // it waited for a connection for too long
	droppedUnknown = "unknown" // no node is known to have the member
)

type metrics struct {
	refused          *prometheus.CounterVec
	receivedBytes    *prometheus.CounterVec
	receivedMessages *prometheus.CounterVec

	sentBytes    *prometheus.CounterVec
	sentMessages *prometheus.CounterVec
	dropped      *prometheus.CounterVec
	dials        *prometheus.CounterVec
	roundTrip    *prometheus.HistogramVec
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "freshet", Subsystem: "peer", Name: name, Help: help,
	}, labels)
}

// serverMetrics registers the metrics of a Server.
func serverMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		refused: counter("refused_total",
			"Connections, calls and messages of other processes that were refused, by reason. Rising: cluster or epoch, "+
				"a node of another cluster, or from before a recovery, connects to this one; certificate or handshake, its "+
				"secret differs or it is no node; permission, a node uses a push secret; version, it has another "+
				"release; connections, too many are open, which a higher LimitNOFILE= allows; name, member, forged, group, "+
				"malformed: a broken or hostile program.", "reason"),
		receivedBytes: counter("received_bytes_total",
			"Bytes of messages from other members, by node and connection.", "node", "connection"),
		receivedMessages: counter("received_messages_total",
			"Messages from other members, by node and connection.", "node", "connection"),
	}
	for _, reason := range []string{refusedHandshake, refusedCert, refusedPermission, refusedName, refusedCluster,
		refusedEpoch, refusedGroup, refusedMember, refusedVersion, refusedForged, refusedMalformed, refusedConnections} {
		m.refused.WithLabelValues(reason)
	}
	reg.MustRegister(m.refused, m.receivedBytes, m.receivedMessages)
	return m
}

// peersMetrics registers the metrics of Peers.
func peersMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		sentBytes: counter("sent_bytes_total",
			"Bytes of messages sent to other members, by node and connection.", "node", "connection"),
		sentMessages: counter("sent_messages_total",
			"Messages sent to other members, by node and connection.", "node", "connection"),
		dropped: counter("dropped_messages_total",
			"Messages to other members that were not sent; members send them again. Rising: full, the node or the network "+
				"does not keep up; late, the node cannot be reached; unknown, the member has left.",
			"node", "connection", "reason"),
		dials: counter("dials_total",
			"Attempts to connect to another node. Rising: it does not run, or the network is cut.", "node", "connection"),
		roundTrip: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "freshet", Subsystem: "peer", Name: "urgent_round_trip_seconds",
			Help: "Time until another node acknowledged a vote, heartbeat or barrier. " +
				"Above 1 s, members elect another leader.",
			Buckets:                     prometheus.ExponentialBuckets(0.0001, 4, 9),
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160,
		}, []string{"node"}),
	}
	reg.MustRegister(m.sentBytes, m.sentMessages, m.dropped, m.dials, m.roundTrip)
	return m
}
