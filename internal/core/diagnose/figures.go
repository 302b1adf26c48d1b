package diagnose

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Shares of the used processor time say little about an idle process.
const (
	idlePart = 0.02 // share of all processors' time
	busyPart = 0.15
)

// active returns 0 for an idle process, 1 for a busy one, and a value in between for others.
func (m *moment) active() float64 { return ramp(m.full(), idlePart, busyPart) }

// idleNote qualifies a share of the used processor time.
func (m *moment) idleNote() string {
	if m.active() == 1 {
		return ""
	}
	return fmt.Sprintf("; only %s of the processors was used, so the share says little", percent(m.full()))
}

// shareOf returns the part of the used processor time in matching stacks.
func (m *moment) shareOf(match func(stack) bool) float64 {
	total := m.cpu.total()
	if total == 0 {
		return 0
	}
	return m.cpu.sum(match) / total
}

func percent(share float64) string {
	if share < 0.1 {
		return fmt.Sprintf("%.1f %%", 100*share)
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}

// seconds formats a duration in a fitting unit.
func seconds(s float64) string {
	if s > maxSeconds {
		return "days"
	}
	d := time.Duration(s * 1e9)
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(10 * time.Nanosecond).String()
}

// average formats a mean that is usually below ten, such as how many processors are busy, with two
// digits. Less than a hundredth is 0.
func average(n float64) string {
	switch {
	case n < 0.01:
		return "0"
	case n < 10:
		return strconv.FormatFloat(n, 'g', 2, 64)
	}
	return count(n)
}

// count formats a number with commas, or with one decimal below ten.
func count(n float64) string {
	if n < 10 {
		return strconv.FormatFloat(math.Round(10*n)/10, 'f', -1, 64)
	}
	if n > 1e15 {
		return fmt.Sprintf("%.3g", n)
	}
	text := strconv.FormatFloat(n, 'f', 0, 64)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func bytesText(n float64) string {
	for _, unit := range []string{"B", "kB", "MB", "GB"} {
		if n < 1000 {
			return fmt.Sprintf("%.3g %s", n, unit)
		}
		n /= 1000
	}
	return fmt.Sprintf("%.3g TB", n)
}

// clip shortens text that a sender wrote.
func clip(text string) string {
	const most = 200 // bytes
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}
