package remoteload

import (
	"fmt"
	"slices"
	"strings"
)

// kind is the type of a series, which decides how values follow each other. The constants have the
// numbers of remote write 2.0.
type kind byte

const (
	counter   kind = 1
	gauge     kind = 2
	histogram kind = 3
)

// seriesPerPod is how many series a pod has: 20 series for each of five routes.
const seriesPerPod = 100

// slot describes one series of each pod.
type slot struct {
	name, help      string
	kind            kind
	handler, method string
	label, value    string // "code", or "le" of a bucket
	wide            bool   // all bits of a value may be set; otherwise the value's low half is zero
}

// valueBytes returns the number of bytes that change at the end of a value.
func (s *slot) valueBytes() int {
	if s.wide {
		return valueBytes
	}
	return highBytes
}

var slots = makeSlots()

func makeSlots() (all []slot) {
	const (
		requests = "Requests that were answered, by status."
		duration = "Seconds from a request to its answer."
		flight   = "Requests under way, by the status of the last one."
		length   = "Bytes of the last answer with this status."
	)
	for _, route := range [][2]string{
		{"/api/v1/cart", "GET"}, {"/api/v1/cart/items", "POST"}, {"/api/v1/checkout", "POST"},
		{"/api/v1/products/{id}", "GET"}, {"/healthz", "GET"},
	} {
		add := func(name, help string, k kind, label string, values ...string) {
			for _, v := range values {
				all = append(all, slot{name: name, help: help, kind: k, handler: route[0], method: route[1], label: label, value: v,
					wide: strings.HasSuffix(name, "_sum")})
			}
		}
		add("http_requests_total", requests, counter, "code", "200", "404", "500")
		add("http_request_duration_seconds_bucket", duration, histogram, "le",
			"0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "+Inf")
		add("http_request_duration_seconds_count", duration, histogram, "code", "200")
		add("http_request_duration_seconds_sum", duration, histogram, "code", "200")
		add("http_requests_in_flight", flight, gauge, "code", "200")
		add("http_response_last_size_bytes", length, gauge, "code", "200", "500")
	}
	if len(all) != seriesPerPod {
		panic(fmt.Sprintf("BUG: %d series a pod, not %d", len(all), seriesPerPod))
	}
	return all
}

// Names returns the names of all metrics in a load. Two series may differ only in the name.
func Names() (all []string) {
	for i := range slots {
		if !slices.Contains(all, slots[i].name) {
			all = append(all, slots[i].name)
		}
	}
	return all
}

// label is a name and its value.
type label struct{ name, value string }

// podLabel is the label whose value ends with the pod's number.
const (
	podLabel  = "pod"
	podPrefix = "shop-6f9c7d8b54-"
	podDigits = 8
)

// Pod returns the value of the label "pod" of a pod that was not replaced.
func Pod(number int) string { return fmt.Sprintf("%s%0*d", podPrefix, podDigits, number) }

// further are the additional labels of series with more than seven labels.
var further = []label{
	{"cluster", "production-1"}, {"region", "eu-west-1"}, {"zone", "eu-west-1b"}, {"namespace", "shop"},
	{"team", "checkout"}, {"version", "v1.24.3"},
}

// labels returns the labels of series i, sorted by name.
func (c Config) labels(to []label, i int) []label {
	s, pod := &slots[i%seriesPerPod], i/seriesPerPod
	to = append(to[:0],
		label{"__name__", s.name}, label{"handler", s.handler},
		label{"instance", fmt.Sprintf("10.%d.%d.%d:8080", pod>>16&255, pod>>8&255, pod&255)},
		label{"job", c.Job()}, label{s.label, s.value}, label{"method", s.method},
		label{podLabel, Pod(pod)})
	for n := range c.Labels - len(to) {
		if n < len(further) {
			to = append(to, further[n])
		} else {
			to = append(to, label{fmt.Sprintf("label_%02d", n), fmt.Sprintf("value-%02d", n)})
		}
	}
	slices.SortFunc(to, func(a, b label) int { return strings.Compare(a.name, b.name) })
	return to
}
