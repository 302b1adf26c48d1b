package main

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
)

// generate writes n documents as NDJSON, compressed by gzip. The documents are the same on each
// machine. There are 40 carriers with 4 services each. Ranges begin at multiples of 100,000, like
// areas of real postal codes. Most ranges cover one area, some cover several. Of a million
// documents, three or four cover a given route.
func generate(out io.Writer, n int) error {
	zipped := gzip.NewWriter(out)
	w := bufio.NewWriter(zipped)
	rng := rand.New(rand.NewPCG(1, 2))
	services := []string{"economy", "express", "same-day", "standard"}
	for range n {
		originFrom, originTo := randomRange(rng)
		from, to := randomRange(rng)
		fmt.Fprintf(w,
			`{"carrier":"carrier-%02d","service":%q,"days":%d,"price_cents":%d,"origin":{"from":"%08d","to":"%08d"},`+
				`"destination":{"from":"%08d","to":"%08d"}}`+"\n",
			rng.IntN(40), services[rng.IntN(len(services))], 1+rng.IntN(9), 500+rng.IntN(5000), originFrom, originTo, from, to)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return zipped.Close()
}

// randomRange returns a range that covers one of 1,000 areas. A quarter of the ranges cover up to
// eight areas.
func randomRange(rng *rand.Rand) (from, to int) {
	const areas, codes = 1000, 100_000
	begin, n := rng.IntN(areas), 1
	if rng.IntN(4) == 0 {
		n += rng.IntN(8)
	}
	return begin * codes, min(begin+n, areas)*codes - 1
}
