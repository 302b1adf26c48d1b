package tail

import (
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
)

// ParseQuery parses the request of a tail: the filter, the share of the datagrams to look at, and
// the maximum number of lines a second, where 0 means no limit.
func ParseQuery(q url.Values) (f Filter, share float64, rate int, err error) {
	f.Name, f.Tags, f.Malformed = q.Get("name"), q["tag"], q.Get("malformed") == "true"
	share = 1
	if text := q.Get("sample"); text != "" {
		if share, err = strconv.ParseFloat(text, 64); err != nil || !(share > 0 && share <= 1) {
			return f, 0, 0, fmt.Errorf("sample = %s: must be above 0 and at most 1, such as 0.01", text)
		}
	}
	if text := q.Get("max_rate"); text != "" {
		if rate, err = strconv.Atoi(text); err != nil || rate < 0 {
			return f, 0, 0, fmt.Errorf("max_rate = %s: must be a number of lines a second, or 0 for no limit", text)
		}
	}
	if text := q.Get("sender"); text != "" {
		if f.From, err = parseNetwork(text); err != nil {
			return f, 0, 0, fmt.Errorf("sender = %s: must be an address or a network, such as 10.1.2.3 or 10.0.0.0/8", text)
		}
	}
	for key, to := range map[string]**int32{"pid": &f.PID, "uid": &f.UID} {
		if text := q.Get(key); text != "" {
			n, err := strconv.ParseInt(text, 10, 32)
			if err != nil {
				return f, 0, 0, fmt.Errorf("%s = %s: must be a whole number", key, text)
			}
			*to = new(int32)
			**to = int32(n)
		}
	}
	return f, share, rate, nil
}

func parseNetwork(text string) (netip.Prefix, error) {
	if ip, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(ip, ip.BitLen()), nil
	}
	return netip.ParsePrefix(text)
}
