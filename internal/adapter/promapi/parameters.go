package promapi

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/common/model"
	v1 "github.com/prometheus/prometheus/web/api/v1"
)

// checkParameters refuses numbers without a sensible meaning, and reports whether it refused any.
// Prometheus' handlers turn NaN and 1e300 into an arbitrary time, which depends on the processor,
// and return the result for that time. The form of r must have been read.
func checkParameters(w http.ResponseWriter, r *http.Request) (refused bool) {
	for _, name := range []string{"time", "start", "end"} {
		text := r.Form.Get(name)
		seconds, err := strconv.ParseFloat(text, 64)
		// The handlers read text that is no number as a date.
		if err == nil && !(seconds >= float64(v1.MinTime.Unix()) && seconds <= float64(v1.MaxTime.Unix())) ||
			outOfRange(err) {
			refuse(w, r, http.StatusBadRequest, "bad_data",
				fmt.Errorf("invalid parameter %q: %.80q is not a time: write Unix seconds from %d to %d, or a date like %s",
					name, text, v1.MinTime.Unix(), v1.MaxTime.Unix(), time.RFC3339))
			return true
		}
	}
	for _, name := range []string{"step", "timeout"} {
		text := r.Form.Get(name)
		if seconds, err := strconv.ParseFloat(text, 64); err == nil && math.IsNaN(seconds) || outOfRange(err) {
			refuse(w, r, http.StatusBadRequest, "bad_data",
				fmt.Errorf("invalid parameter %q: %.80q is not a duration: write seconds, or a duration like 30s", name, text))
			return true
		}
	}
	return refuseNoTime(w, r)
}

// outOfRange reports whether err says that a number is too large for a float64.
func outOfRange(err error) bool {
	return errors.Is(err, strconv.ErrRange)
}

// refuseNoTime answers queries whose timeout leaves no time, with the statuses that Prometheus
// uses. Otherwise chance would decide whether the deadline or the result comes first.
func refuseNoTime(w http.ResponseWriter, r *http.Request) (refused bool) {
	text := r.Form.Get("timeout")
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil {
		var d model.Duration
		d, err = model.ParseDuration(text)
		seconds = time.Duration(d).Seconds()
	}
	if err != nil || seconds > 0 {
		return false
	}
	status, kind := http.StatusUnprocessableEntity, "execution"
	if seconds < 0 {
		status, kind = http.StatusBadRequest, "bad_data"
	}
	refuse(w, r, status, kind,
		fmt.Errorf("context deadline exceeded: timeout=%.80s leaves the query no time; without the parameter, the "+
			"server's query.timeout applies", text))
	return true
}
