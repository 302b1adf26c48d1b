package report

import (
	"fmt"
	"math"
)

// Fairness is how long other tenants wait for their acknowledgements while one sends far more than
// its limit. The two halves of a pair, with that tenant and without it, have the same server and the
// same load of the others.
type Fairness struct {
	Date     string    `json:"date"` // UTC
	Machine  Machine   `json:"machine"`
	Versions []Version `json:"versions"`

	Tenants  int     `json:"tenants"`           // the others
	Batch    int     `json:"samples_a_request"` // samples of each of their requests
	OneBatch int     `json:"its_samples_a_request"`
	Limit    float64 `json:"limit"`           // limit of the one tenant, in samples a second
	Times    float64 `json:"times_the_limit"` // how many times its limit it should send

	// These have one value for each pair.
	Capacity []float64 `json:"capacity"` // samples a second of the others, flat out; they send half of it
	Alone    []float64 `json:"alone_p99_ms"`
	Beside   []float64 `json:"beside_p99_ms"` // while it sends
	Rate     []float64 `json:"rate"`          // rate at which it sent, in samples a second

	// These cover all pairs.
	Requests     uint64 `json:"requests"`     // timed requests of the others
	SentAgain    uint64 `json:"sent_again"`   // how many of them an answer asked to send again
	Acknowledged uint64 `json:"acknowledged"` // samples of the others
	Stored       uint64 `json:"stored"`       // how many of them the ledger has as stored
	Sent         uint64 `json:"sent"`         // requests of the one
	Refused      uint64 `json:"refused"`      // how many of them were refused
}

// goalFairness is how many times as long the others may wait at most.
const goalFairness = 1.10

// ratios returns the ratio of each pair.
func (f *Fairness) ratios() []float64 { return ratios(f.Beside, f.Alone) }

// ratio formats the median of the ratios with its confidence interval.
func (f *Fairness) ratio() string {
	median := Median(f.ratios())
	low, high := MedianInterval(f.ratios())
	if math.IsInf(low, 0) {
		return two(median) + " of too few pairs"
	}
	return fmt.Sprintf("%.2f (95 %%: %.2f-%.2f)", median, low, high)
}

// Lost returns how many acknowledged samples of the others are not in the ledger.
func (f *Fairness) Lost() int64 { return int64(f.Acknowledged) - int64(f.Stored) }

func (r *Results) fairness() string {
	f := r.Fairness
	if f == nil || len(f.Alone) == 0 {
		return notMeasured
	}
	return measured(f.Date, f.Machine, f.Versions) + table([]string{"", ""}, [][]string{
		{"pairs", fmt.Sprint(len(f.Alone))},
		{"the others, flat out",
			thousands(Median(f.Capacity)) + fmt.Sprintf(" samples a second of %d tenants, %d a request", f.Tenants, f.Batch)},
		{"p99 of their acknowledgements at half that rate, ms", withSpread(f.Alone, significant)},
		{"the same while one tenant sends too much", withSpread(f.Beside, significant)},
		{"ratio of a pair, median and its confidence interval", f.ratio()},
		{"requests that were timed",
			thousands(float64(f.Requests)) + ", of which " + thousands(float64(f.SentAgain)) + " had to be sent again"},
		{"the one tenant",
			fmt.Sprintf("%s samples a second, %s a request, %.0f times its limit",
				thousands(Median(f.Rate)), thousands(float64(f.OneBatch)), Median(f.Rate)/f.Limit)},
		{"its requests",
			fmt.Sprintf("%s, of which %.1f %% were refused",
				thousands(float64(f.Sent)), 100*float64(f.Refused)/float64(max(1, f.Sent)))},
		{"samples of the others acknowledged and not in the ledger", thousands(float64(f.Lost()))},
	})
}

func (r *Results) fairnessGoals() [][]string {
	f := r.Fairness
	if f == nil || len(f.Alone) == 0 {
		return nil
	}
	name := fmt.Sprintf("One tenant at %.0f times its limit", f.Times)
	return [][]string{
		verdictRow(name, "99 of 100 requests of the others acknowledged, to the same without it", f.ratio(),
			fmt.Sprintf("at most %.2f", goalFairness), RatioAtMost(f.ratios(), goalFairness)),
		runsRow(name, "samples a second that it sent", f.Rate, thousands, thousands(f.Times*f.Limit), func(v float64) bool {
			return v >= RateReached*f.Times*f.Limit
		}),
		goalRow(name, "samples of the others acknowledged and not in the ledger", thousands(float64(f.Lost())), "0",
			f.Lost() == 0),
	}
}
