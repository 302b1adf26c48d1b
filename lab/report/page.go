package report

import (
	"fmt"
	"math"
	"regexp"
	"strings"
)

// sections are the generated parts of the page. Each stands between a marker with its name and an
// end marker.
var sections = []struct {
	name   string
	render func(*Results) string
}{
	{"machine", (*Results).machine},
	{"goals", (*Results).goals},
	{"costs", (*Results).costs},
	{"idle", (*Results).idle},
	{"rates", (*Results).rates},
	{"receivers", (*Results).receivers},
	{"packed", func(r *Results) string { return r.Packed.table() }},
	{"memory", func(r *Results) string { return r.Memory.table() }},
	{"scale", (*Results).scale},
	{"techniques", (*Results).techniques},
	{"decoders", (*Results).decoders},
	{"pools", (*Results).pools},
	{"clients", (*Results).clients},
	{"remotewrite", (*Results).remoteWrite},
	{"query", (*Results).queries},
	{"start", func(r *Results) string { return r.Start.table() }},
	{"disk", func(r *Results) string { return r.Disk.table() }},
	{"fairness", (*Results).fairness},
	{"dashboards", (*Results).dashboards},
	{"cluster", (*Results).cluster},
	{"rules", (*Results).rules},
}

// String returns the results as text for a terminal.
func (r *Results) String() string {
	var b strings.Builder
	for _, s := range sections {
		if text := s.render(r); text != notMeasured {
			b.WriteString(text + "\n")
		}
	}
	return b.String()
}

// section matches a generated part: <!-- lab: costs --> ... <!-- end -->
var section = regexp.MustCompile(`(?s)<!-- lab: (\w+) -->\n.*?<!-- end -->\n`)

// Page returns the page with new tables. `page` must have markers for each section.
func (r *Results) Page(page string) (string, error) {
	found := map[string]bool{}
	for _, place := range section.FindAllStringSubmatch(page, -1) {
		found[place[1]] = true
	}
	for _, s := range sections {
		if !found[s.name] {
			return "", fmt.Errorf("has no place for %s: write <!-- lab: %s --> and <!-- end -->", s.name, s.name)
		}
		delete(found, s.name)
	}
	for name := range found {
		return "", fmt.Errorf("has a place for %s, which the lab does not measure", name)
	}
	return section.ReplaceAllStringFunc(page, func(old string) string {
		name := section.FindStringSubmatch(old)[1]
		for _, s := range sections {
			if s.name == name {
				old = fmt.Sprintf("<!-- lab: %s -->\n\n%s\n<!-- end -->\n", name, s.render(r))
			}
		}
		return old
	}), nil
}

func (r *Results) machine() string {
	rows := [][]string{
		{"measured", r.Date},
		{"processor", fmt.Sprintf("%s, %d cores", r.Machine.CPU, r.Machine.Cores)},
		{"memory", fmt.Sprintf("%.0f GiB", float64(r.Machine.MemoryBytes)/(1<<30))},
		{"kernel", r.Machine.Kernel},
		{"processes running before", fmt.Sprintf("%.1f on average, in the last minute", r.Machine.LoadAverage)},
	}
	if r.Machine.Stolen != nil { // nil means that it was not measured
		rows = append(rows,
			[]string{
				"processors were taken away", fmt.Sprintf("by the hypervisor, for %.1f %% of the time", 100**r.Machine.Stolen),
			})
	}
	for _, v := range r.Versions {
		rows = append(rows, []string{v.Name, v.Version})
	}
	text := table([]string{"", ""}, rows)
	for _, why := range r.LeftOut {
		text += "\nNot measured: " + why + "\n"
	}
	return text
}

// costs returns a plot and a table for each load.
func (r *Results) costs() string {
	var b strings.Builder
	for _, l := range r.Loads {
		fmt.Fprintf(&b, "### %s\n\n", l.Name)
		fmt.Fprintf(&b, "%s bytes a packet, %s contexts, %s metrics a second.\n\n", thousands(float64(l.Bytes)),
			thousands(float64(l.Contexts)), thousands(l.Rate))
		fmt.Fprintf(&b, "![CPU microseconds a metric, by receiver](performance/%s.svg)\n\n", l.ID)
		var rows [][]string
		for _, c := range l.sorted() {
			rows = append(rows, []string{c.Name, c.micros(), megabytes(Median(c.Resident)), l.reached(c)})
		}
		fmt.Fprintf(&b, "%s\n", table([]string{"receiver", "us of CPU a metric:", "resident MB:", "sent a second:"}, rows))
	}
	if len(r.Loads) == 0 {
		return notMeasured
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// reached returns the rate that the sender reached, as text. A cost holds only for the rate at which it
// was measured.
func (l *Load) reached(c Cost) string { return thousands(math.Round(Median(c.Rate)/100) * 100) }

func (r *Results) idle() string {
	var rows [][]string
	for _, i := range r.Idle {
		rows = append(rows, []string{i.Name, withSpread(i.Percent, significant), ifAny(i.Resident, megabytes)})
	}
	return table([]string{"receiver", "percent of a core:", "resident MB:"}, rows)
}

func (r *Results) rates() string {
	var rows [][]string
	for _, rate := range r.Rates {
		rows = append(rows, []string{rate.Name, rate.millions()})
	}
	return table([]string{"receiver, on one core", "million metrics a second:"}, rows)
}
