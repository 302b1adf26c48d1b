package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/freshet-io/freshet/internal/adapter/terminal"
)

// packetMax is the highest rate without loss.
type packetMax struct {
	Rate     float64    `json:"highest_rate_without_loss_metrics_per_second"` // 0 if datagrams were lost at every rate
	Loss     float64    `json:"lowest_rate_with_loss_metrics_per_second"`     // 0 if nothing was lost
	LimitIs  string     `json:"limit"`                                        // receiver or sender
	Steps    []maxStep  `json:"steps"`
	CostThen packetCost `json:"measured_at_highest_rate_without_loss"`
	LossCost packetCost `json:"measured_at_lowest_rate_with_loss"`
}

// maxStep is a rate that was tried.
type maxStep struct {
	Asked float64   `json:"asked_metrics_per_second"` // 0 for as fast as possible
	Run   packetRun `json:"run"`
}

func (s maxStep) lossless() bool { return s.Run.LostSamples == 0 && s.Run.SenderDropped == 0 }

const (
	maxPrecision = 0.03 // share of the rate; smaller differences are noise on most machines
	busyCore     = 80   // percent of a core; if a receiver loses packets but uses less, other processes had the core
)

// findMax sends as fast as possible to find an upper bound. Then it bisects between a rate without
// loss and a rate with loss. Other processes can also cause loss, so a rate counts as lossy only if
// packets are lost twice.
func (m *packetMeasurement) findMax(ctx context.Context) (packetMax, error) {
	var found packetMax
	high, err := m.try(ctx, &found, 0)
	if err != nil {
		return found, err
	}
	if high.lossless() {
		found.LimitIs = "sender"
		if high.Run.RefusedTimes > 0 {
			found.LimitIs = "receiver" // the receiver made the sender wait
		}
		return found, nil
	}
	found.LimitIs, found.Loss, found.LossCost = "receiver", high.Run.Cost.SentPerSecond, high.Run.Cost
	for found.Loss-found.Rate > maxPrecision*found.Loss && found.Loss > 1000 {
		asked := math.Round((found.Rate + found.Loss) / 2)
		step, err := m.try(ctx, &found, asked)
		if err == nil && !step.lossless() {
			step, err = m.try(ctx, &found, asked)
		}
		switch {
		case err != nil:
			return found, err
		case !step.lossless():
			found.Loss, found.LossCost = asked, step.Run.Cost
		case step.Run.Cost.SentPerSecond < reachedShare*asked:
			found.LimitIs = "sender"
			return found, nil
		}
	}
	return found, nil
}

// try sends at a rate and notes the result.
func (m *packetMeasurement) try(ctx context.Context, found *packetMax, rate float64) (maxStep, error) {
	m.title = "as fast as possible"
	if rate > 0 {
		m.title = fmt.Sprintf("%s metrics/s (%s without loss so far)", wholeRate(rate), wholeRate(found.Rate))
	}
	run, err := m.run(ctx, pace{rate, m.pace.duration})
	if errors.Is(err, errUnexplained) && run.KernelDroppedPackets > 0 {
		err = nil // the number of lost packets does not matter here
	}
	if err != nil {
		return maxStep{}, err
	}
	step := maxStep{rate, run}
	found.Steps = append(found.Steps, step)
	if step.lossless() && run.Cost.SentPerSecond > found.Rate {
		found.Rate, found.CostThen = run.Cost.SentPerSecond, run.Cost
	}
	return step, nil
}

// printMax prints the result.
func (b *packetBench) printMax(found packetMax, err error) error {
	if err != nil {
		return err
	}
	b.line.Clear()
	if b.asJSON {
		return terminal.PrintJSON(b.view.Out, struct {
			Load packetLoad `json:"load"`
			packetMax
		}{b.describe(), found})
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s\n\n%s\n\n", b.headline(), found)
	rows := [][]string{{"asked metrics/s", "sent metrics/s", "lost samples", "lost", "CPU us a metric", "CPU of a core"}}
	for _, s := range found.Steps {
		asked := "max"
		if s.Asked > 0 {
			asked = wholeRate(s.Asked)
		}
		rows = append(rows,
			[]string{asked, wholeRate(s.Run.Cost.SentPerSecond), terminal.Thousands(s.Run.LostSamples),
				terminal.Share(s.Run.LostSamples, s.Run.SentSamples),
				fmt.Sprintf("%.3f", s.Run.Cost.CPUMicros), fmt.Sprintf("%.0f %%", s.Run.Cost.CPUPercent)})
	}
	if err := terminal.WriteTable(&text, rows, len(rows[0])-1); err != nil {
		return err
	}
	_, err = fmt.Fprint(b.view.Out, text.String())
	return err
}

// String describes the result for people.
func (m packetMax) String() string {
	switch {
	case m.LimitIs == "sender" && m.Loss > 0:
		return fmt.Sprintf("Highest rate without loss: between %s and %s metrics/s. The sender did not reach the rates "+
			"between them: other processes used its core.",
			wholeRate(m.Rate), wholeRate(m.Loss))
	case m.LimitIs == "sender":
		return fmt.Sprintf("Highest rate without loss: over %s metrics/s. The sender is the limit: it could not send more.",
			wholeRate(m.Rate))
	case m.Loss == 0:
		return fmt.Sprintf("Highest rate without loss: %s metrics/s. The receiver is the limit: it made the sender wait.",
			wholeRate(m.Rate))
	case m.Rate == 0:
		return fmt.Sprintf("No rate without loss was found: even %s metrics/s lose some.", wholeRate(m.Loss))
	}
	text := fmt.Sprintf("Highest rate without loss: %s metrics/s, for %v. The receiver is the limit: it lost at %s.",
		wholeRate(m.Rate), time.Duration(m.CostThen.Seconds*1e9).Round(time.Second), wholeRate(m.Loss))
	if used := m.LossCost.CPUPercent; used < busyCore {
		text += fmt.Sprintf("\nIt had used %.0f %% of a core by then: its receive buffer is too small, "+
			"or other processes used its core.", used)
	}
	return text
}
