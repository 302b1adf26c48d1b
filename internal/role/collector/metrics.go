package collector

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshet-io/freshet/internal/adapter/sockets"
	"github.com/freshet-io/freshet/internal/core/dogstatsd"
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("freshet_dogstatsd_"+name, help, labels, nil)
}

var (
	descPackets = describe("packets_total",
		"Datagrams and frames read.", "listener")
	descBytes = describe("bytes_total",
		"Bytes in them.", "listener")
	descDrops = describe("kernel_dropped_packets_total",
		"Datagrams that the kernel dropped because the socket's buffer was full. Rising: the reader does not keep up, "+
			"or dogstatsd.receive_buffer is too small.", "listener")
	descOversized = describe("oversized_packets_total",
		"Datagrams and frames longer than dogstatsd.max_packet, which are not read. Rising: "+
			"a client's packets are larger than the limit.", "listener")
	descReadErrors = describe("read_errors_total",
		"Reads that failed. Rising: the machine is short of memory or descriptors, or stream connections break.", "listener")
	descRefusedConnections = describe("refused_connections_total",
		"Stream connections closed at once because too many were open.", "listener")
	descCutFrames = describe("cut_frames_total",
		"Frames that the end of their stream connection cut off.", "listener")
	descMalformed = describe("malformed_lines_total",
		"Lines that could not be read, by reason (docs/dogstatsd.md). Rising: a client is broken; its other lines count.",
		"listener", "reason")
	descUnknownFields = describe("unknown_fields_total",
		"Fields that this version does not know. They cost nothing. Rising: clients speak a newer protocol.", "listener")
	descBadFields = describe("bad_fields_total",
		"Exemplars (|x:), and fields of events and checks, that are invalid and were left out; their line, "+
			"event or check counts. Rising: a client is broken; freshet explain says what is wrong with a line.", "listener")
	descSamples = describe("samples_total",
		"Values counted in a window.", "listener")
	descDropped = describe("rule_dropped_samples_total",
		"Values that a mapping rule drops.", "listener")
	descNegative = describe("negative_samples_total",
		"Increments refused because a counter cannot go down. Rising: a client decrements; a mapping rule with updown: "+
			"true turns its counter into a gauge that adds up.", "listener")
	descTimedRefused = describe("timed_refused_samples_total",
		"Values with a timestamp (|T, d:) refused because their series had 1,024 other timestamps in one window. Rising: "+
			"a client sends history in one go; it should spread it.", "listener")
	descAheadRefused = describe("ahead_refused_samples_total",
		"Gauges and checks refused because their own timestamp (|T, d:) is more than 60 s ahead of the clock here. "+
			"Rising: a client's clock is fast, or it sends milliseconds.", "listener")
	descOverflowed = describe("overflowed_samples_total",
		"Values refused because their sum in one window would overflow. Rising: a client sends absurd values.", "listener")
	descExemplars = describe("exemplars_total",
		"Exemplars (|x:) of lines that entered a window. Each series keeps the newest of a window and of a tile, "+
			"so that fewer are stored: see freshet_store_exemplars_stored_total.", "listener")
	descExemplarsRefused = describe("refused_exemplars_total",
		"Exemplars whose time is more than 10 minutes ahead, or whose value is not finite after a rule has scaled it; "+
			"their lines count. Rising: a client's clock is fast.", "listener")
	descTooSmall = describe("setting_too_small",
		"1 while a setting of the kernel will cost packets: net.core.rmem_max caps the receive buffer of UDP, "+
			"net.unix.max_dgram_qlen the queue of a Unix datagram socket. The log of the start says how to raise it.",
		"listener", "setting")
	descBuffer = describe("receive_buffer_bytes",
		"Receive buffer that the kernel granted each UDP socket of the listener, as dogstatsd.receive_buffer counts it.",
		"listener")
	descWantedBuffer = describe("receive_buffer_wanted_bytes",
		"Receive buffer that dogstatsd.receive_buffer asks for. More than was granted: net.core.rmem_max caps it.",
		"listener")
	descClientDrops = describe("client_dropped_packets_total",
		"Datagrams that clients say they dropped because the socket did not take them "+
			"(datadog.dogstatsd.client.packets_dropped_writer). Rising: the queue of a Unix datagram socket is full, "+
			"see net.unix.max_dgram_qlen.", "listener")
	descContexts = describe("contexts",
		"Contexts (spellings of a series) that the listener remembers. Memory grows with their number.", "listener")
	descSeries = describe("series",
		"Series that the listener remembers.", "listener")
	descResolved = describe("new_contexts_total",
		"Contexts that had to be looked up. Rising fast: cardinality explodes, or clients write labels in changing orders.",
		"listener")
	descRespellings = describe("respelled_samples_total",
		"Values of series in a spelling that is not remembered, because eight others of the series are: they take "+
			"the slow path. Rising: a client writes labels in changing orders.", "listener")
	descEvents = describe("events_total",
		"Events read.", "listener")
	descEventsRefused = describe("refused_events_total",
		"Events that were dropped because they were beyond 10,000 in a second.", "listener")

	descConflicts = describe("kind_conflicts_total",
		"Contexts whose name another kind owns; they are stored as NAME_KIND. The log names them once. "+
			"Rising: an application reports one name as two kinds.")
	descForms = describe("form_conflicts_total",
		"Names of timers whose buckets differ from the buckets of the name's owner. They are stored as "+
			"NAME_native or NAME_classic. The log names them once. Rising: rules disagree about a metric.")
	descCollisions = describe("name_collisions_total",
		"Metrics that get the name of another metric, such as a.b and a_b. The log names them once.")
	descForgotten = describe("unremembered_names_total",
		"Contexts with a new name, of a tenant that already has 100,000 names in the catalogue, which is the limit; they "+
			"are stored as NAME_KIND_HASH. Rising: clients write values into names.")
	descGivenBack = describe("given_back_names_total",
		"Unused names that were given back to make room, because their tenant had 100,000 names in the catalogue, "+
			"which is the limit. Rising: clients write values into names.")
	descRefused = describe("refused_samples_total",
		"Values lost because the aggregator can never take their window. Rising: a bug of Freshet; "+
			"the log says which limit was met.")
	descUnsent = describe("unsent_samples_total",
		"Values lost because the aggregator took no window before the process ended.")
	descPushErrors = describe("push_errors_total",
		"Pushes of a window that the aggregator did not take; they are tried again. Rising: its disk is full or broken.")
	descEventsUnsent = describe("unsent_events_total",
		"Events lost because they could not be written before the process ended, or because more than 10,000 waited.")
)

// exporter reads the listeners' counts at each scrape, so metrics cost the reading threads no extra
// work.
type exporter struct {
	*shared
	listeners func() []*listener
}

// Describe is part of prometheus.Collector. It declares nothing beforehand.
func (e *exporter) Describe(chan<- *prometheus.Desc) {}

// Collect is part of prometheus.Collector.
func (e *exporter) Collect(out chan<- prometheus.Metric) {
	count := func(desc *prometheus.Desc, n uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), labels...)
	}
	gauge := func(desc *prometheus.Desc, n float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, n, labels...)
	}
	for name, l := range e.byName() {
		s, c := l.sockets, l.counts
		count(descPackets, s.Packets, name)
		count(descBytes, s.Bytes, name)
		count(descDrops, l.drops, name)
		out <- prometheus.MustNewConstMetric(descClientDrops, prometheus.CounterValue, c.clientDrops, name)
		count(descOversized, s.Truncated+s.LongFrames, name)
		count(descReadErrors, s.ReadErrors, name)
		count(descRefusedConnections, s.Refused, name)
		count(descCutFrames, s.CutFrames, name)
		for reason, n := range c.malformed {
			count(descMalformed, n, name, dogstatsd.Reason(reason).String())
		}
		count(descUnknownFields, c.unknownFields, name)
		count(descBadFields, c.badFields, name)
		count(descSamples, c.Samples, name)
		count(descDropped, c.Dropped, name)
		count(descNegative, c.Negative, name)
		count(descTimedRefused, c.TimedRefused, name)
		count(descAheadRefused, c.AheadRefused, name)
		count(descOverflowed, c.Overflowed, name)
		count(descExemplars, c.Exemplars, name)
		count(descExemplarsRefused, c.ExemplarsRefused, name)
		count(descResolved, c.Resolved, name)
		count(descRespellings, c.Respellings, name)
		count(descEvents, c.events, name)
		count(descEventsRefused, c.eventsRefused, name)
		if l.setting != "" {
			gauge(descTooSmall, float64(l.tooSmall), name, l.setting)
		}
		if l.wanted > 0 {
			gauge(descBuffer, float64(l.granted), name)
			gauge(descWantedBuffer, float64(l.wanted), name)
		}
		gauge(descContexts, float64(c.Contexts), name)
		gauge(descSeries, float64(c.Series), name)
	}
	count(descConflicts, e.reports.conflicts.Load())
	count(descForms, e.reports.forms.Load())
	count(descCollisions, e.reports.collisions.Load())
	count(descForgotten, e.reports.full.Load())
	count(descGivenBack, e.Catalogue.GivenBack())
	count(descRefused, e.flusher.refused.Load())
	count(descUnsent, e.flusher.unsent.Load())
	count(descPushErrors, e.flusher.pushErrors.Load())
	count(descEventsUnsent, e.flusher.eventsUnsent.Load())
}

// total sums all readers of one address.
type total struct {
	sockets sockets.Stats
	drops   uint64
	counts  counts

	setting         string // the kernel's setting that bounds the queue
	tooSmall        int    // 1 if the setting is too small for a reader
	granted, wanted int    // bytes of the smallest receive buffer among the readers
}

// byName sums the readers that share an address.
func (e *exporter) byName() map[string]*total {
	all := map[string]*total{}
	for _, l := range e.listeners() {
		name := l.name()
		if all[name] == nil {
			all[name] = new(total)
		}
		all[name].add(l)
	}
	return all
}

func (t *total) add(l *listener) {
	s := l.socket.Stats()
	t.sockets.Packets += s.Packets
	t.sockets.Bytes += s.Bytes
	t.sockets.Truncated += s.Truncated
	t.sockets.LongFrames += s.LongFrames
	t.sockets.ReadErrors += s.ReadErrors
	t.sockets.Refused += s.Refused
	t.sockets.CutFrames += s.CutFrames
	t.drops += l.socket.Drops()
	setting, tooSmall := l.socket.Setting()
	if t.setting = setting; tooSmall {
		t.tooSmall = 1
	}
	if wanted, granted := l.socket.ReceiveBuffer(); t.wanted == 0 || granted < t.granted {
		t.wanted, t.granted = wanted, granted
	}

	c, sum := l.counts(), &t.counts
	for reason := range c.malformed {
		sum.malformed[reason] += c.malformed[reason]
	}
	sum.unknownFields += c.unknownFields
	sum.badFields += c.badFields
	held, series := sum.Contexts, sum.Series
	sum.Stats = sum.Plus(c.Stats)
	sum.Contexts += held
	sum.Series += series
	sum.events += c.events
	sum.eventsRefused += c.eventsRefused
	sum.clientDrops += c.clientDrops
}
