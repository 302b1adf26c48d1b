package main

import (
	"fmt"
	"strings"
)

// quantile returns a query for a quantile of one of Freshet's histograms. A Prometheus may have the
// histogram in one of two forms, or in both: native, or classic, which a scrape stores by default. If it
// has both, the query uses the native form, which is more exact.
func quantile(q float64, histogram, selector, over string, by ...string) string {
	of := strings.Join(by, ", ")
	if selector != "" {
		selector = "{" + selector + "}"
	}
	return fmt.Sprintf(`histogram_quantile(%[1]v, sum by (%[2]s) (rate(%[3]s%[4]s[%[5]s])))
or histogram_quantile(%[1]v, sum by (%[2]s, le) (rate(%[3]s_bucket%[4]s[%[5]s])))`, q, of, histogram, selector, over)
}
