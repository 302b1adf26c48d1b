package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// Limits of a document.
const (
	codeDigits = 8  // digits of a postal code, so that it fits into 32 bits
	maxName    = 64 // bytes of a carrier's or a service's name
	maxLine    = 64 << 10
)

// document is one row of route coverage: a carrier takes parcels from one range of postal codes to
// another.
type document struct {
	carrier, service    string
	origin, destination codeRange
	days                uint16
	priceCents          uint32
}

// codeRange is a range of postal codes, including both ends.
type codeRange struct{ from, to uint32 }

// parseDocument reads a document and checks all of it. Its errors name the field.
//
//	{"carrier":"acme","service":"express","days":2,"price_cents":1290,
//	 "origin":{"from":"01000000","to":"01099999"},"destination":{"from":"20000000","to":"20199999"}}
//
// It ignores unknown fields, which other programs may use.
func parseDocument(text []byte) (d document, err error) {
	type ends struct{ From, To string }
	var raw struct {
		Carrier, Service    string
		Origin, Destination ends
		Days                *int64
		PriceCents          *int64 `json:"price_cents"`
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return d, err
	}
	d.carrier, d.service = raw.Carrier, raw.Service
	if err := checkName("carrier", raw.Carrier); err != nil {
		return d, err
	}
	if err := checkName("service", raw.Service); err != nil {
		return d, err
	}
	if d.origin, err = parseRange("origin", raw.Origin.From, raw.Origin.To); err != nil {
		return d, err
	}
	if d.destination, err = parseRange("destination", raw.Destination.From, raw.Destination.To); err != nil {
		return d, err
	}
	days, err := checkNumber("days", raw.Days, math.MaxUint16)
	if err != nil {
		return d, err
	}
	price, err := checkNumber("price_cents", raw.PriceCents, math.MaxUint32)
	d.days, d.priceCents = uint16(days), uint32(price)
	return d, err
}

func checkName(field, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%s: is missing", field)
	case len(name) > maxName:
		return fmt.Errorf("%s: has %d bytes, at most %d are allowed", field, len(name), maxName)
	case !utf8.ValidString(name) || strings.ContainsRune(name, utf8.RuneError):
		return fmt.Errorf("%s: %q is not UTF-8", field, name)
	}
	return nil
}

func checkNumber(field string, n *int64, most int64) (int64, error) {
	switch {
	case n == nil:
		return 0, fmt.Errorf("%s: is missing", field)
	case *n < 0 || *n > most:
		return 0, fmt.Errorf("%s: %d is not from 0 to %d", field, *n, most)
	}
	return *n, nil
}

func parseRange(field, from, to string) (r codeRange, err error) {
	if r.from, err = parseCode(from); err != nil {
		return r, fmt.Errorf("%s.from: %w", field, err)
	}
	if r.to, err = parseCode(to); err != nil {
		return r, fmt.Errorf("%s.to: %w", field, err)
	}
	if r.from > r.to {
		return r, fmt.Errorf("%s: from = %s is after to = %s", field, from, to)
	}
	return r, nil
}

// errCode is made once, so that a bad request costs no allocation.
var errCode = errors.New("is not a postal code of 8 digits")

// parseCode reads a postal code.
func parseCode(s string) (code uint32, err error) {
	if len(s) != codeDigits {
		return 0, errCode
	}
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0, errCode
		}
		code = code*10 + uint32(c-'0')
	}
	return code, nil
}
