package main

import (
	"fmt"
	"strings"
)

// quantile returns a query for a quantile of one of Freshet's histograms. A Prometheus stores the
// histogram in the native form, in the classic form (the default of a scrape), or in both. If it has
// both, the query uses the native form, which is more exact.
func quantile(q float64, histogram, selector, over string, by ...string) string {
	of := strings.Join(by, ", ")
	if selector != "" {
		selector = "{" + selector + "}"
	}
	return fmt.Sprintf(`histogram_quantile(%[1]v, sum by (%[2]s) (rate(%[3]s%[4]s[%[5]s])))
or histogram_quantile(%[1]v, sum by (%[2]s, le) (rate(%[3]s_bucket%[4]s[%[5]s])))`, q, of, histogram, selector, over)
}
