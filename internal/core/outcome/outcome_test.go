package outcome

import (
	"errors"
	"net/http"
	"strings"
	"testing"
)

func refuse(reason Reason, parts Counts) func(*Outcome) {
	return func(o *Outcome) {
		if o.Refuse(reason, parts) {
			o.Tell(`up{job="a"}`, errors.New("the cause"))
		}
	}
}

func written(parts Counts) func(*Outcome) { return func(o *Outcome) { o.Written.Add(parts) } }

// One outcome gives two answers: where remote write returns an error, OTLP returns success with a
// message.
func TestOneOutcomeTwoAnswers(t *testing.T) {
	for _, c := range []struct {
		why          string
		steps        []func(*Outcome)
		remoteWrite  int
		rejected     int64
		text, absent string
	}{
		{"an empty request is a success", nil, http.StatusNoContent, 0, "", ""},
		{"all was written", []func(*Outcome){written(Counts{Samples: 2})}, http.StatusNoContent, 0, "", ""},
		{"dropping is what the configuration wants", []func(*Outcome){func(o *Outcome) { o.Dropped.Samples = 3 }},
			http.StatusNoContent, 0, "", ""},
		{"no room for an exemplar is no mistake", []func(*Outcome){func(o *Outcome) { o.NotKept = 3 }}, http.StatusNoContent,
			0, "", ""},
		{"a mistake in one sample of many",
			[]func(*Outcome){written(Counts{Samples: 9}), refuse(Duplicate, Counts{Samples: 1})},
			http.StatusBadRequest, 1,
			`1 of 10 were refused (1 duplicate), everything else was written; the first is up{job="a"}: the cause`, ""},
		{"a limit alone", []func(*Outcome){refuse(TooManySeries, Counts{Samples: 2, Histograms: 1})},
			http.StatusTooManyRequests, 3, "3 too_many_series", ""},
		{"a mistake goes before a limit, since it must not be retried",
			[]func(*Outcome){refuse(TooManySeries, Counts{Samples: 1}), refuse(TooOld, Counts{Samples: 1})},
			http.StatusBadRequest, 2, "(1 too_old, 1 too_many_series)", ""},
		{"a series without samples counts as one", []func(*Outcome){written(Counts{Samples: 9}), refuse(NoSamples, Counts{})},
			http.StatusBadRequest, 0, "1 of 10 were refused (1 no_samples)", ""},
		{"a series without samples and with a mistake, beside a limit",
			[]func(*Outcome){refuse(TooManySeries, Counts{Samples: 1}), refuse(BadLabels, Counts{})},
			http.StatusBadRequest, 1, "(1 bad_labels, 1 too_many_series)", ""},
		{"an exemplar is no data point", []func(*Outcome){refuse(BadExemplar, Counts{Exemplars: 1})}, http.StatusBadRequest,
			0, "1 bad_exemplar", ""},
		{"an increment that cannot be added", []func(*Outcome){refuse(Delta, Counts{Samples: 1})}, http.StatusBadRequest, 1,
			"1 delta", ""},
		{"a series as long as a book", []func(*Outcome){func(o *Outcome) {
			o.Refuse(TooLongLabel, Counts{Samples: 1})
			o.Tell(strings.Repeat("é", 1000)+"end", errors.New("the cause"))
		}}, http.StatusTooManyRequests, 1, "é…: the cause", "end"},
		{"not UTF-8", []func(*Outcome){func(o *Outcome) {
			o.Refuse(BadLabels, Counts{Samples: 1})
			o.Tell("a\xff", errors.New("the cause"))
		}}, http.StatusBadRequest, 1, "a\uFFFD: the cause", ""},
	} {
		var o Outcome
		for _, step := range c.steps {
			step(&o)
		}
		status, text := o.RemoteWrite()
		all := o.AllRefused()
		all.Add(o.Written)
		rejected, message := o.OTLP(all.Samples+all.Histograms, all.Samples+all.Histograms)
		if status != c.remoteWrite || rejected != c.rejected || text != message || !strings.Contains(text, c.text) ||
			(c.text == "") != (text == "") ||
			c.absent != "" && strings.Contains(text, c.absent) {
			t.Errorf("%s: remote write answers %d, want %d; OTLP rejects %d, want %d; texts %q and %q, want %q",
				c.why, status, c.remoteWrite, rejected, c.rejected, text, message, c.text)
		}
	}
}

func TestPartsOfARequestAddUp(t *testing.T) {
	var a, b, c Outcome
	written(Counts{Samples: 1, Histograms: 2, Exemplars: 3})(&a)
	written(Counts{Samples: 10, Histograms: 20, Exemplars: 30})(&b)
	refuse(TooOld, Counts{Samples: 1})(&b)
	b.Dropped.Samples, b.NotKept = 5, 6
	c.Refuse(TooOld, Counts{Samples: 1})
	c.Tell("second", errors.New("later"))
	a.Add(&b)
	a.Add(&c)
	if a.Written != (Counts{Samples: 11, Histograms: 22, Exemplars: 33}) || a.Refused[TooOld].Samples != 2 ||
		a.Dropped.Samples != 5 || a.NotKept != 6 || !strings.Contains(a.Text(), "up{") {
		t.Errorf("%+v: %s", a, a.Text())
	}
}

// Each point became several samples. The number of refused points is exact if all or none are
// refused. Otherwise it is at least one.
func TestRejectedPointsOfSeveralSamples(t *testing.T) {
	const points, samples = 10, 140 // histograms of 12 buckets
	for refused, want := range map[int]int64{0: 0, 1: 1, 14: 1, 15: 2, 70: 5, 140: 10} {
		var o Outcome
		refuse(TooOld, Counts{Samples: refused})(&o)
		if rejected, _ := o.OTLP(points, samples); rejected != want {
			t.Errorf("%d of %d samples are refused: OTLP rejects %d points, want %d", refused, samples, rejected, want)
		}
	}
	var o Outcome
	refuse(TooOld, Counts{Samples: 2})(&o) // one sample is of target_info, which belongs to no point
	if rejected, _ := o.OTLP(1, 1); rejected != 1 {
		t.Errorf("OTLP rejects %d points, want 1, since only one was sent", rejected)
	}
}
