package main

import (
	"fmt"
	"strings"
)

// quantile asks for a quantile of a histogram of Freshet in both forms in which a Prometheus
// may have it: native, or classic, which is what a scrape stores by default. Where a
// Prometheus has both, the native one counts, which is more exact.
func quantile(q float64, histogram, selector, over string, by ...string) string {
	of := strings.Join(by, ", ")
	if selector != "" {
		selector = "{" + selector + "}"
	}
	return fmt.Sprintf(`histogram_quantile(%[1]v, sum by (%[2]s) (rate(%[3]s%[4]s[%[5]s])))
or histogram_quantile(%[1]v, sum by (%[2]s, le) (rate(%[3]s_bucket%[4]s[%[5]s])))`, q, of, histogram, selector, over)
}
