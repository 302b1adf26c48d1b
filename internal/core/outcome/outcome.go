// Package outcome describes what became of a request with samples: how much was written, how much
// was refused and why, and the first refusal. It also makes the answers of remote write and OTLP,
// which report the same outcome in two ways.
package outcome

import (
	"fmt"
	"strings"
)

// Reason is why part of a request was not written.
type Reason uint8

// The reasons: first the sender's mistakes, then limits.
const (
	BadLabels    Reason = iota // no metric name, text that is not UTF-8, or a label twice
	BadHistogram               // contradictory, or with an unknown schema
	BadExemplar                // no time, or labels that are too long
	Mixed                      // a delta of one kind for a total of another kind
	TooOld                     // before the out-of-order window
	TooFarAhead                // more than 10 minutes in the future
	Duplicate                  // the series has another value at this time
	Delta                      // an increment that cannot be added to a total
	NoSamples                  // a series of remote write 2.0 without samples, histograms or exemplars
	TooManySeries
	TooManyLabels
	TooLongLabel
	TooManyTenants // the tenant is not admitted: see core/tenants
	NumReasons
)

const firstLimit = TooManySeries

var reasonNames = [NumReasons]string{
	"bad_labels", "bad_histogram", "bad_exemplar", "mixed_series", "too_old", "too_far_ahead", "duplicate",
	"delta", "no_samples",
	"too_many_series", "too_many_labels", "too_long_label",
	"too_many_tenants",
}

// String returns the reason's name in metrics, the ledger and documentation.
func (r Reason) String() string { return reasonNames[r] }

// IsLimit reports whether the reason is a limit: with another configuration the part would have
// been accepted.
func (r Reason) IsLimit() bool { return r >= firstLimit }

// Counts are the numbers of parts of a request.
type Counts struct {
	Samples, Histograms, Exemplars int

	// Series counts refused series that have no samples, histograms or exemplars. If metadata alone is
	// dropped, Series counts its families.
	Series int
}

// Total returns the sum.
func (c Counts) Total() int { return c.Samples + c.Histograms + c.Exemplars + c.Series }

// Add adds `more` to `c`.
func (c *Counts) Add(more Counts) {
	c.Samples += more.Samples
	c.Histograms += more.Histograms
	c.Exemplars += more.Exemplars
	c.Series += more.Series
}

// Outcome is the fate of each part of a request: written, dropped or refused. It is a value without
// references to the request. The zero Outcome is the outcome of an empty request.
type Outcome struct {
	Written Counts // stored now, or stored before with the same value
	Dropped Counts // by a rule, as the copy of an HA pair, or as metadata alone if the tenant is not admitted
	Refused [NumReasons]Counts

	// NotKept counts exemplars for which there was no room. They are not refused: the store keeps
	// only a fixed number of the newest exemplars.
	NotKept int

	First Example // the first refusal
}

// Example is the only refusal that the answer shows.
type Example struct {
	Series string // as sent, at most maxSeriesText bytes
	Cause  string // the cause, with the limit if there is one, and the way out
}

// Refusal is the reason why something is not written.
type Refusal struct {
	Reason Reason
	Cause  error // the cause, with the limit if there is one, and the way out
}

// maxSeriesText bounds the text of a series in an answer, in bytes.
const maxSeriesText = 512

// Refuse counts refused parts of one series, or the series itself if it has no parts. It reports
// whether this is the request's first refusal. If so, the caller calls Tell with the series and the
// cause. To format both for each refusal would cost more than to write the samples.
func (o *Outcome) Refuse(reason Reason, parts Counts) (first bool) {
	if parts == (Counts{}) {
		parts.Series = 1
	}
	o.Refused[reason].Add(parts)
	return o.First == (Example{})
}

// Tell sets the first refusal.
func (o *Outcome) Tell(series string, cause error) {
	series = strings.ToValidUTF8(series, "\uFFFD")
	if len(series) > maxSeriesText {
		series = strings.ToValidUTF8(series[:maxSeriesText], "") + "…"
	}
	o.First = Example{series, cause.Error()}
}

// AnyRefused reports whether a part of the request was refused.
func (o *Outcome) AnyRefused() bool { return o.First != (Example{}) }

// NoTenant reports whether the whole request was refused because its tenant is not admitted.
func (o *Outcome) NoTenant() bool { return o.Refused[TooManyTenants] != (Counts{}) }

// AllRefused returns the counts of everything refused.
func (o *Outcome) AllRefused() (all Counts) {
	for _, r := range o.Refused {
		all.Add(r)
	}
	return all
}

// Add adds the outcome of another part of the same request.
func (o *Outcome) Add(more *Outcome) {
	o.Written.Add(more.Written)
	o.Dropped.Add(more.Dropped)
	o.NotKept += more.NotKept
	for i := range o.Refused {
		o.Refused[i].Add(more.Refused[i])
	}
	if !o.AnyRefused() {
		o.First = more.First
	}
}

// Text lists the refusals by reason, and names the first refused series. It is empty if nothing was
// refused.
func (o *Outcome) Text() string {
	if !o.AnyRefused() {
		return ""
	}
	var reasons []string
	for reason, refused := range o.Refused {
		if n := refused.Total(); n > 0 {
			reasons = append(reasons, fmt.Sprintf("%d %s", n, Reason(reason)))
		}
	}
	refused := o.AllRefused().Total()
	return fmt.Sprintf("%d of %d were refused (%s), everything else was written; the first is %s: %s",
		refused, refused+o.Written.Total()+o.Dropped.Total()+o.NotKept, strings.Join(reasons, ", "),
		o.First.Series, o.First.Cause)
}

// HTTP statuses.
const (
	noContent       = 204
	badRequest      = 400
	tooManyRequests = 429
)

// RemoteWrite returns the answer of remote write, which is never 2xx if something was refused. If
// 400 and 429 both apply, the answer is 400, since after a 429 a sender would retry samples that
// can never be written. Source: the specification of remote write 2.0, "Partial Write".
func (o *Outcome) RemoteWrite() (status int, text string) {
	switch {
	case !o.AnyRefused():
		return noContent, ""
	case o.onlyLimits():
		return tooManyRequests, o.Text()
	}
	return badRequest, o.Text()
}

// OTLP returns the answer of OTLP: 200, and the number of rejected data points. Exemplars are
// parts of points and do not count. Source: opentelemetry-proto, "Partial Success".
//
// The number is exact if all points or none were refused, or if each point became one sample. Only
// points of classic histograms and summaries become several samples. For these the number is an
// estimate: refused points in proportion to refused samples, at least one.
func (o *Outcome) OTLP(points, samples int) (rejected int64, text string) {
	all := o.AllRefused()
	refused := int64(all.Samples + all.Histograms)
	if samples > points {
		refused = (refused*int64(points) + int64(samples) - 1) / int64(samples)
	}
	return min(refused, int64(points)), o.Text()
}

func (o *Outcome) onlyLimits() bool {
	for reason, refused := range o.Refused {
		if !Reason(reason).IsLimit() && refused.Total() > 0 {
			return false
		}
	}
	return true
}
