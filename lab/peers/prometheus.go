package peers

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// scrape reads a page of metrics in Prometheus' text format.
func scrape(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	return io.ReadAll(resp.Body)
}

// counter returns the sum of a counter's series on a page. With a label, written as `name="value"`,
// it sums only the series with that label. A counter that was never incremented may be missing on
// the page.
func counter(page []byte, name, label string) (sum uint64, err error) {
	lines := bufio.NewScanner(bytes.NewReader(page))
	for lines.Scan() {
		series, value, ok := cutLast(lines.Text())
		if !ok || !(series == name || strings.HasPrefix(series, name+"{")) || !strings.Contains(series, label) {
			continue
		}
		v, err := strconv.ParseFloat(value, 64) // the value may be like 1e+06
		if err != nil {
			return 0, fmt.Errorf("counter %s: %w", name, err)
		}
		sum += uint64(v)
	}
	return sum, lines.Err()
}

func cutLast(line string) (series, value string, ok bool) {
	i := strings.LastIndexByte(line, ' ')
	if i < 0 || strings.HasPrefix(line, "#") {
		return "", "", false
	}
	return line[:i], line[i+1:], true
}
