package dogstatsd

// Reason says why a line is malformed. Its String is the label "reason" of the counter of malformed
// samples, so a name must not change once it is released.
type Reason uint8

const (
	EmptyName     Reason = iota // nothing before the first ':', or a check without a name
	NoType                      // no '|': not a line of this protocol
	NoValue                     // no ':' after the name, or only ':' after it
	UnknownType                 // none of c, g, ms, h, d, s, nh
	BadValue                    // not a decimal number
	NotFinite                   // NaN, an infinity, or a number beyond the range of a float64
	BadRate                     // |@ without a number from MinRate to 1
	BadTimestamp                // |T without whole seconds from 1 to MaxTime
	TimestampType               // |T on a type other than c and g
	EventHeader                 // "_e{" without two lengths and "}:"
	EventTitle                  // an event with an empty title
	EventLength                 // the lengths of an event do not match its line
	CheckStatus                 // a check's status is missing or none of 0, 1, 2, 3
	BadHistogram                // buckets not written as in docs/format/buckets.md
	NumReasons

	wellFormed = NumReasons // the result of a parsing step without a fault
)

var reasonNames = [NumReasons]string{
	EmptyName:     "empty_name",
	NoType:        "no_type",
	NoValue:       "no_value",
	UnknownType:   "unknown_type",
	BadValue:      "bad_value",
	NotFinite:     "not_finite",
	BadRate:       "bad_rate",
	BadTimestamp:  "bad_timestamp",
	TimestampType: "timestamp_type",
	EventHeader:   "event_header",
	EventTitle:    "event_title",
	EventLength:   "event_length",
	CheckStatus:   "check_status",
	BadHistogram:  "bad_histogram",
}

// String returns the reason's name in metrics and documentation.
func (r Reason) String() string {
	if r < NumReasons {
		return reasonNames[r]
	}
	return "unknown"
}

// fail notes the fault: `rest` begins with the first wrong byte, and `expected` says what should be
// there. It runs only for malformed lines.
func (p *Parser) fail(reason Reason, rest []byte, expected string) Reason {
	p.wrong, p.expected = rest, expected
	return reason
}
