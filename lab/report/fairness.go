package report

import (
	"fmt"
	"math"
)

// Fairness says how long other tenants wait for their acknowledgements while the tenant "one" sends
// far more than its limit. A pair has a half with the load of the tenant "one" and a half without
// it. Both halves have the same server and the same load of the other tenants.
type Fairness struct {
	Date     string    `json:"date"` // UTC
	Machine  Machine   `json:"machine"`
	Versions []Version `json:"versions"`

	Tenants  int     `json:"tenants"`           // number of the other tenants
	Batch    int     `json:"samples_a_request"` // samples in each request of the other tenants
	OneBatch int     `json:"its_samples_a_request"`
	Limit    float64 `json:"limit"`           // limit of the tenant "one", in samples a second
	Times    float64 `json:"times_the_limit"` // rate at which the tenant "one" should send, as a multiple of its limit

	// The lists below have one value for each pair.
	Capacity []float64 `json:"capacity"` // the highest rate of the other tenants, in samples a second; in the pairs they send half of it
	Alone    []float64 `json:"alone_p99_ms"`
	Beside   []float64 `json:"beside_p99_ms"` // p99 while the tenant "one" sends
	Rate     []float64 `json:"rate"`          // rate at which the tenant "one" sent, in samples a second

	// The numbers below cover all pairs.
	Requests     uint64 `json:"requests"`     // timed requests of the other tenants
	SentAgain    uint64 `json:"sent_again"`   // answers that asked to send the request again
	Acknowledged uint64 `json:"acknowledged"` // samples of the other tenants
	Stored       uint64 `json:"stored"`       // how many of these samples the ledger has as stored
	Sent         uint64 `json:"sent"`         // requests of the tenant "one"
	Refused      uint64 `json:"refused"`      // how many of these requests were refused
}

// goalFairness is the largest factor by which the waiting time of the other tenants may grow.
const goalFairness = 1.10

// ratios returns, for each pair, Beside divided by Alone.
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

// Lost returns how many acknowledged samples of the other tenants are not in the ledger.
func (f *Fairness) Lost() int64 { return int64(f.Acknowledged) - int64(f.Stored) }

func (r *Results) fairness() string {
	f := r.Fairness
	if f == nil || len(f.Alone) == 0 {
		return notMeasured
	}
	return measured(f.Date, f.Machine, f.Versions) + table([]string{"", ""}, [][]string{
		{"pairs", fmt.Sprint(len(f.Alone))},
		{"highest rate of the other tenants",
			thousands(Median(f.Capacity)) + fmt.Sprintf(" samples a second of %d tenants, %d a request", f.Tenants, f.Batch)},
		{"p99 of their acknowledgements at half of that rate, ms", withSpread(f.Alone, significant)},
		{"the same p99 while one tenant sends too much, ms", withSpread(f.Beside, significant)},
		{"ratio of the two in a pair, median and its confidence interval", f.ratio()},
		{"timed requests",
			thousands(float64(f.Requests)) + ", of which " + thousands(float64(f.SentAgain)) + " had to be sent again"},
		{"the tenant that sends too much",
			fmt.Sprintf("%s samples a second, %s a request, %.0f times its limit",
				thousands(Median(f.Rate)), thousands(float64(f.OneBatch)), Median(f.Rate)/f.Limit)},
		{"its requests",
			fmt.Sprintf("%s, of which %.1f %% were refused",
				thousands(float64(f.Sent)), 100*float64(f.Refused)/float64(max(1, f.Sent)))},
		{"samples of other tenants that were acknowledged but are not in the ledger", thousands(float64(f.Lost()))},
	})
}

func (r *Results) fairnessGoals() [][]string {
	f := r.Fairness
	if f == nil || len(f.Alone) == 0 {
		return nil
	}
	name := fmt.Sprintf("One tenant at %.0f times its limit", f.Times)
	return [][]string{
		verdictRow(name, "p99 of the other tenants' acknowledgements, divided by the p99 without this load", f.ratio(),
			fmt.Sprintf("at most %.2f", goalFairness), RatioAtMost(f.ratios(), goalFairness)),
		runsRow(name, "samples a second that this tenant sent", f.Rate, thousands, thousands(f.Times*f.Limit),
			func(v float64) bool { return v >= RateReached*f.Times*f.Limit }),
		goalRow(name, "samples of other tenants that were acknowledged but are not in the ledger",
			thousands(float64(f.Lost())), "0",
			f.Lost() == 0),
	}
}
