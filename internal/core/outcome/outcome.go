// Package outcome holds what became of a request that brought samples: how much of it
// was written, what was refused and why, and which was the first. Remote write and OTLP
// answer one outcome in two ways, which stand here side by side.
package outcome

import (
	"fmt"
	"strings"
)

// Reason is why something of a request was not written, while the rest was.
type Reason uint8

// Reasons that are the sender's mistake come first, then those that are limits.
const (
	BadLabels    Reason = iota // no name, not UTF-8, a name twice
	BadHistogram               // contradicts itself, or has a schema that nobody knows
	BadExemplar                // no time, or labels that are too long
	Mixed                      // deltas of one kind for a total of another
	TooOld                     // before the out-of-order window
	TooFarAhead                // more than 10 minutes in the future
	Duplicate                  // another value is at its time
	Delta                      // what is to be added to a total, and cannot be
	NoSamples                  // a series of version 2 of remote write that brings nothing
	TooManySeries
	TooManyLabels
	TooLongLabel
	TooManyTenants // its tenant has no store, and gets none
	NumReasons
)

const firstLimit = TooManySeries

var reasonNames = [NumReasons]string{
	"bad_labels", "bad_histogram", "bad_exemplar", "mixed_series", "too_old", "too_far_ahead", "duplicate", "delta", "no_samples",
	"too_many_series", "too_many_labels", "too_long_label",
	"too_many_tenants",
}

// String is the reason as metrics, the ledger and documentation spell it.
func (r Reason) String() string { return reasonNames[r] }

// IsLimit reports whether another configuration would have taken it.
func (r Reason) IsLimit() bool { return r >= firstLimit }

// Counts are numbers of what a request can bring.
type Counts struct {
	Samples, Histograms, Exemplars int

	Series int // refused ones that bring none of these, so that they count as well
}

// Total is the sum of a request's parts.
func (c Counts) Total() int { return c.Samples + c.Histograms + c.Exemplars + c.Series }

// Add adds more to c.
func (c *Counts) Add(more Counts) {
	c.Samples += more.Samples
	c.Histograms += more.Histograms
	c.Exemplars += more.Exemplars
	c.Series += more.Series
}

// Outcome is the fate of each part of a request: written, dropped or refused. It is a value
// that points at nothing of the request. The zero Outcome is that of an empty request.
type Outcome struct {
	Written Counts // stored, or there already with the same value
	Dropped Counts // by a rule, or the copy of an HA pair: as the configuration wants it
	Refused [NumReasons]Counts

	// NotKept counts exemplars for which there was no room, which is no mistake: the
	// store keeps the newest of a fixed number.
	NotKept int

	First Example // of what was refused
}

// Example is the one refusal that an answer tells of.
type Example struct {
	Series string // as it was sent, at most maxSeriesText bytes of it
	Cause  string // names the limit, if it is one, and the way out
}

// Refusal is why something is not written.
type Refusal struct {
	Reason Reason
	Cause  error // names the limit, if it is one, and the way out
}

// maxSeriesText bounds what of a series stands in an answer, in bytes.
const maxSeriesText = 512

// Refuse counts parts of one series that are not written, or the series if it has none. It
// reports whether they are the request's first: then the caller has Tell say which series
// they are of, and why. To spell that out for each refusal would cost more than to write it.
func (o *Outcome) Refuse(reason Reason, parts Counts) (first bool) {
	if parts == (Counts{}) {
		parts.Series = 1
	}
	o.Refused[reason].Add(parts)
	return o.First == (Example{})
}

// Tell says what was refused first.
func (o *Outcome) Tell(series string, cause error) {
	series = strings.ToValidUTF8(series, "\uFFFD")
	if len(series) > maxSeriesText {
		series = strings.ToValidUTF8(series[:maxSeriesText], "") + "…"
	}
	o.First = Example{series, cause.Error()}
}

// AnyRefused reports whether the request was written in part only.
func (o *Outcome) AnyRefused() bool { return o.First != (Example{}) }

// NoTenant reports whether all of the request was refused for its tenant's sake, of whom
// there is nothing here.
func (o *Outcome) NoTenant() bool { return o.Refused[TooManyTenants] != (Counts{}) }

// AllRefused is how much was refused.
func (o *Outcome) AllRefused() (all Counts) {
	for _, r := range o.Refused {
		all.Add(r)
	}
	return all
}

// Add adds what became of another part of the same request.
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

// Text says what was refused, by reason, and names the first series. It is empty if
// nothing was.
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
		refused, refused+o.Written.Total()+o.Dropped.Total()+o.NotKept, strings.Join(reasons, ", "), o.First.Series, o.First.Cause)
}

// Statuses of HTTP.
const (
	noContent       = 204
	badRequest      = 400
	tooManyRequests = 429
)

// RemoteWrite is the answer of remote write: never a 2xx if something was refused. 400
// goes before 429, since a sender that repeats on 429 would repeat what can never be
// written. Source: the specification of remote write 2.0, "Partial Write".
func (o *Outcome) RemoteWrite() (status int, text string) {
	switch {
	case !o.AnyRefused():
		return noContent, ""
	case o.onlyLimits():
		return tooManyRequests, o.Text()
	}
	return badRequest, o.Text()
}

// OTLP is the answer of OTLP: 200, and how many of the data points were rejected that the
// samples and histograms were made of. Exemplars are parts of points and do not count.
// Source: opentelemetry-proto, "Partial Success".
//
// The number is exact if no point became more than one sample, as all but classic
// histograms and summaries do, or if all or none were refused. Else nobody knows whose the
// refused samples are: the points are taken to be in proportion, and at least one.
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
