// Package terminal shows the answers of a Prometheus API to a person: tables, bars for native
// histograms, plots for ranges of time. The command sends the request and handles its errors.
package terminal

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/prometheus/common/model"
	"golang.org/x/term"
)

// View says where and how to show an answer, and which time range the request asked for.
type View struct {
	Out, Notes io.Writer // Out gets only series, for scripts; Notes gets everything else
	Columns    int       // width of the terminal or page
	Colour     bool      // whether to use the terminal's colours

	At     time.Time     // the end of the range, if there is one
	Length time.Duration // the maximum length of the range; 0 for an instant
	Step   time.Duration // time between points of the range; above 0 if Length is above 0
}

// New returns the view of out. If out is not a terminal, the view is 80 columns wide.
func New(out, notes io.Writer) View {
	v := View{Out: out, Notes: notes, Columns: 80}
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		v.Colour = !dumb() && os.Getenv("NO_COLOR") == ""
		if columns, _, err := term.GetSize(int(file.Fd())); err == nil {
			v.Columns = columns
		}
	}
	return v
}

// Start returns the first point of the range. It lies a whole number of steps before At, so that
// At is a point. If steps began at At minus Length, the last point could be up to one step before
// At, and the newest samples would not show.
func (v View) Start() time.Time { return v.At.Add(-v.Length.Truncate(v.Step)) }

// dumb is true if the terminal takes no control sequences.
func dumb() bool { return os.Getenv("TERM") == "dumb" }

// Show prints a result of one of PromQL's four types, given as the API's JSON.
func (v View) Show(kind string, result []byte) error {
	switch kind {
	case "scalar":
		var scalar model.Scalar
		if err := json.Unmarshal(result, &scalar); err != nil {
			return err
		}
		_, err := fmt.Fprintln(v.Out, scalar.Value)
		return err
	case "string":
		var text model.String
		if err := json.Unmarshal(result, &text); err != nil {
			return err
		}
		_, err := fmt.Fprintln(v.Out, Printable(text.Value))
		return err
	case "vector":
		var vector model.Vector
		if err := json.Unmarshal(result, &vector); err != nil {
			return err
		}
		if len(vector) == 0 {
			return v.nothing()
		}
		return writeVector(v.Out, vector)
	case "matrix":
		var matrix model.Matrix
		if err := json.Unmarshal(result, &matrix); err != nil {
			return err
		}
		if len(matrix) == 0 {
			return v.nothing()
		}
		if v.Length > 0 {
			return v.draw(matrix)
		}
		return writeMatrix(v.Out, matrix)
	}
	return fmt.Errorf("this version does not know the type %q; use --json", kind)
}

// nothing, the method for an empty answer, writes a note that no series match. The note does not go to
// Out, where a script expects only series.
func (v View) nothing() error {
	span := "at " + v.At.Format(time.RFC3339)
	if v.Length > 0 {
		span = "from " + v.Start().Format(time.RFC3339) + " to " + v.At.Format(time.RFC3339)
	}
	_, err := fmt.Fprintf(v.Notes, "no series match %s\n", span)
	return err
}
