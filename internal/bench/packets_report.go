package bench

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/freshet-io/freshet/internal/adapter/terminal"
	"github.com/freshet-io/freshet/internal/lib/build"
)

// packetLoad describes the load, and the receiver that got it.
type packetLoad struct {
	Build            string  `json:"build"`
	Receiver         string  `json:"receiver"` // role of the receiver if bench started it, otherwise its address
	Network          string  `json:"network"`
	RatePerSecond    float64 `json:"asked_metrics_per_second"` // 0 for as fast as possible, and for --find-max
	Contexts         int     `json:"contexts"`
	NewPerSecond     float64 `json:"new_contexts_per_second"`
	Kinds            string  `json:"kinds"`
	Tags             int     `json:"tags"`
	LineBytes        int     `json:"line_bytes"`
	MetricsPerPacket int     `json:"metrics_per_packet"`
	PacketBytes      int     `json:"packet_bytes"`
	Seed             uint64  `json:"seed"`
	GSO              bool    `json:"gso"`
	Sources          int     `json:"sources"`
	Pinned           bool    `json:"receiver_on_one_core"`
}

func (b *packetBench) describe() packetLoad {
	per := b.load.PerPacket()
	l := packetLoad{
		Build: build.This().String(), Receiver: b.server.Address, Network: b.sender.Network, RatePerSecond: b.pace.rate,
		Contexts: b.load.Contexts, NewPerSecond: b.newContexts, Kinds: b.load.Kinds.String(), Tags: b.load.Tags,
		LineBytes:        b.load.LineBytes(),
		MetricsPerPacket: per, PacketBytes: per*(b.load.LineBytes()+1) - 1, Seed: b.load.Seed,
		GSO: b.sender.GSO, Sources: b.sender.Sources, Pinned: b.pin,
	}
	if b.server.Address == "" {
		l.Receiver = "role " + b.role
	}
	if b.findMax {
		l.RatePerSecond = 0
	}
	return l
}

// headline says what was measured.
func (b *packetBench) headline() string {
	l := b.describe()
	text := fmt.Sprintf("%s, %s: %s contexts with %d tags, %d of %d bytes a packet", l.Receiver, l.Network,
		terminal.Thousands(uint64(l.Contexts)), l.Tags, l.MetricsPerPacket, l.LineBytes)
	if l.NewPerSecond > 0 {
		text += ", " + wholeRate(l.NewPerSecond) + " new contexts/s"
	}
	if l.GSO {
		text += ", GSO"
	}
	if l.Pinned {
		text += ", on one core"
	}
	return text
}

// spread is a figure over several runs.
type spread struct {
	Median  float64 `json:"median"`
	Lowest  float64 `json:"lowest"`
	Highest float64 `json:"highest"`
}

func spreadOf(runs []packetRun, figure func(packetCost) float64) spread {
	var all []float64
	for _, r := range runs {
		all = append(all, figure(r.Cost))
	}
	slices.Sort(all)
	n := len(all)
	return spread{(all[(n-1)/2] + all[n/2]) / 2, all[0], all[n-1]}
}

// packetFigures are the figures that vary from run to run, with their names in JSON and for people.
var packetFigures = []struct {
	key, name string
	of        func(packetCost) float64
	text      func(float64) string
}{
	{"sent_metrics_per_second", "sent, metrics/s", func(c packetCost) float64 { return c.SentPerSecond }, wholeRate},
	{"cpu_us_per_metric", "CPU, us a metric", func(c packetCost) float64 { return c.CPUMicros }, decimals(3)},
	{"cpu_user_us_per_metric", "  user", func(c packetCost) float64 { return c.CPUUserMicros }, decimals(3)},
	{"cpu_system_us_per_metric", "  system", func(c packetCost) float64 { return c.CPUSystemMicros }, decimals(3)},
	{"cpu_percent_of_a_core", "CPU, % of a core", func(c packetCost) float64 { return c.CPUPercent }, decimals(1)},
	{"gc_percent_of_cpu", "GC, % of the CPU", func(c packetCost) float64 { return c.GCPercent }, decimals(1)},
	{"allocations_per_metric", "allocations a metric", func(c packetCost) float64 { return c.Allocations }, decimals(4)},
	{"allocated_bytes_per_metric", "allocated bytes a metric", func(c packetCost) float64 { return c.AllocatedBytes },
		decimals(2)},
	{"resident_bytes", "resident memory, MB", func(c packetCost) float64 { return c.ResidentBytes }, megabytes},
	{"heap_live_bytes", "live heap, MB", func(c packetCost) float64 { return c.HeapLiveBytes }, megabytes},
}

// printRuns prints the results of the runs.
func (b *packetBench) printRuns(r *receiver, runs []packetRun) error {
	b.line.Clear()
	if b.asJSON {
		return b.printRunsJSON(runs)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s\n\n", b.headline())
	if err := terminal.WriteTable(&text, bookRows(runs), 3); err != nil {
		return err
	}
	writeNotKept(&text, runs)
	text.WriteByte('\n')
	rows := [][]string{{fmt.Sprintf("cost over %.1f s", runs[0].Cost.Seconds), ""}}
	if len(runs) > 1 {
		rows = [][]string{{fmt.Sprintf("cost, %d runs of %.1f s", len(runs), runs[0].Cost.Seconds), "median", "lowest",
			"highest"}}
	}
	for _, f := range packetFigures {
		s := spreadOf(runs, f.of)
		row := []string{f.name, f.text(s.Median)}
		if len(runs) > 1 {
			row = append(row, f.text(s.Lowest), f.text(s.Highest))
		}
		rows = append(rows, row)
	}
	if err := terminal.WriteTable(&text, rows, len(rows[0])-1); err != nil {
		return err
	}
	text.WriteString(b.hint(r, runs))
	_, err := io.WriteString(b.view.Out, text.String())
	return err
}

// bookRows returns the rows of sent samples and what became of them, for all runs together.
func bookRows(runs []packetRun) [][]string {
	var sum packetRun
	for _, r := range runs {
		sum.SentPackets += r.SentPackets
		sum.SentSamples += r.SentSamples
		sum.ReceivedPackets += r.ReceivedPackets
		sum.ReceivedSamples += r.ReceivedSamples
		sum.KernelDroppedPackets += r.KernelDroppedPackets
		sum.OversizedPackets += r.OversizedPackets
		sum.LostSamples += r.LostSamples
		sum.FoldedSamples += r.FoldedSamples
		sum.SenderDropped += r.SenderDropped
		sum.SenderDroppedSamples += r.SenderDroppedSamples
	}
	rows := [][]string{
		{"books", "packets", "samples", ""},
		{"sent", terminal.Thousands(sum.SentPackets), terminal.Thousands(sum.SentSamples), ""},
		{"received", terminal.Thousands(sum.ReceivedPackets), terminal.Thousands(sum.ReceivedSamples),
			terminal.Share(sum.ReceivedSamples, sum.SentSamples)},
		{"dropped by the kernel", terminal.Thousands(sum.KernelDroppedPackets), terminal.Thousands(sum.LostSamples),
			terminal.Share(sum.LostSamples, sum.SentSamples)},
	}
	if sum.OversizedPackets > 0 {
		rows = append(rows, []string{"longer than max_packet", terminal.Thousands(sum.OversizedPackets), "", ""})
	}
	if sum.FoldedSamples > 0 {
		rows = append(rows,
			[]string{
				"received, but folded by a limit", "", terminal.Thousands(sum.FoldedSamples),
				terminal.Share(sum.FoldedSamples, sum.SentSamples),
			})
	}
	if sum.SenderDropped > 0 {
		rows = append(rows,
			[]string{
				"not sent: the socket was full", terminal.Thousands(sum.SenderDropped),
				terminal.Thousands(sum.SenderDroppedSamples), "",
			})
	}
	return rows
}

// writeNotKept lists why received samples are not kept.
func writeNotKept(w io.Writer, runs []packetRun) {
	sum := map[string]uint64{}
	for _, r := range runs {
		for reason, n := range r.NotKept {
			sum[reason] += n
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(sum)) {
		fmt.Fprintf(w, "%s of the received samples are %s\n", terminal.Thousands(sum[reason]), terminal.Printable(reason))
	}
}

// hint says what to try if the result falls short of the request.
func (b *packetBench) hint(r *receiver, runs []packetRun) string {
	var text strings.Builder
	var dropped, refused uint64
	for _, r := range runs {
		dropped += r.KernelDroppedPackets
		refused += r.RefusedTimes
	}
	if refused > 0 && !b.sender.DropRefused {
		fmt.Fprintf(&text, "\nThe socket was full %s times, and the sender waited for room.\n", terminal.Thousands(refused))
	}
	if dropped > 0 {
		text.WriteString("\nThe kernel dropped packets because the receive buffer was full; " +
			"--find-max looks for the limit.\n")
	}
	reached := spreadOf(runs, func(c packetCost) float64 { return c.SentPerSecond }).Median
	if reached < reachedShare*b.pace.rate && refused == 0 {
		fmt.Fprintf(&text,
			"\nThe sender did not reach %s metrics/s: other processes used its core, or it could not send more.\n",
			wholeRate(b.pace.rate))
	}
	if dropped+refused > 0 {
		for _, warning := range r.warnings(b.sender.Network) {
			fmt.Fprintf(&text, "\nThe receiver warned: %s\n", warning)
		}
	}
	return text.String()
}

func (b *packetBench) printRunsJSON(runs []packetRun) error {
	spreads := map[string]spread{}
	for _, f := range packetFigures {
		spreads[f.key] = spreadOf(runs, f.of)
	}
	return terminal.PrintJSON(b.view.Out, struct {
		Load    packetLoad        `json:"load"`
		Runs    []packetRun       `json:"runs"`
		Spreads map[string]spread `json:"measured"`
	}{b.describe(), runs, spreads})
}
