package server

import "errors"

// denial is the error of a refused request, with the reason under which the request is counted.
type denial struct {
	reason string
	error
}

func (d denial) Unwrap() error { return d.error }

// The reasons of freshet_http_refused_requests_total.
const (
	reasonUnauthorized = "unauthorized"
	reasonForbidden    = "forbidden"
	reasonOperator     = "operator"
	reasonForeignPage  = "foreign_page"
	reasonHost         = "host"
)

// reasonOf returns the reason under which an error is counted.
func reasonOf(err error) string {
	if d := (denial{}); errors.As(err, &d) {
		return d.reason
	}
	return reasonForbidden
}
