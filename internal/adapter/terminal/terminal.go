// Package terminal shows a person what a Prometheus API answered: tables, bars
// for native histograms, plots for ranges of time. Asking, and what to do with
// errors, is the command's.
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

// View is where an answer is shown, and the time that was asked for.
type View struct {
	Out, Notes io.Writer // series only, which a script may read; and what is said beside them
	Columns    int       // of the terminal, or of the page
	Colour     bool      // the terminal's colours may be used

	At     time.Time     // the end of the range, if there is one
	Length time.Duration // of the range at most; 0 for the instant
	Step   time.Duration // between points of the range; above 0 if Length is
}

// New returns the view of out, which is a terminal or a page of 80 columns.
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

// Start is the first point of the range: whole steps before At, so that the last point is
// there. From Length before it the steps would end up to one too soon, and what is newer
// than that would not be seen.
func (v View) Start() time.Time { return v.At.Add(-v.Length.Truncate(v.Step)) }

// dumb reports whether the terminal says that it takes no control sequences.
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

// nothing says so apart from the output, where a script expects series only.
func (v View) nothing() error {
	span := "at " + v.At.Format(time.RFC3339)
	if v.Length > 0 {
		span = "from " + v.Start().Format(time.RFC3339) + " to " + v.At.Format(time.RFC3339)
	}
	_, err := fmt.Fprintf(v.Notes, "no series match %s\n", span)
	return err
}
