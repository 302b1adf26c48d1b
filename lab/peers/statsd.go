package peers

import (
	"bufio"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

var statsd = Peer{
	Name: "statsd", Version: "0.9.0", Language: "JavaScript", Tags: true,
	program: "node_modules/statsd/stats.js",
	build:   buildStatsd,
	plan:    planStatsd,
}

//go:embed statsd
var statsdFiles embed.FS

// buildStatsd installs the packages in package-lock.json, except the optional packages, which are
// for syslog, Windows and relaying.
func buildStatsd(ctx context.Context, _ *Peer, home string, out io.Writer) error {
	for _, name := range []string{"package.json", "package-lock.json"} {
		text, err := statsdFiles.ReadFile("statsd/" + name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(home, name), text, 0o644); err != nil {
			return err
		}
	}
	cmd := exec.CommandContext(ctx, "npm", "ci", "--omit=optional", "--ignore-scripts", "--no-audit", "--no-fund",
		"--no-update-notifier")
	cmd.Dir, cmd.Stdout, cmd.Stderr = home, out, out
	return cmd.Run()
}

// planStatsd requests no receive buffer, since statsd has no setting for it.
func planStatsd(at place) (plan, error) {
	discard, err := statsdFiles.ReadFile("statsd/discard.js")
	if err != nil {
		return plan{}, err
	}
	backend, err := at.write("discard.js", string(discard))
	if err != nil {
		return plan{}, err
	}
	host, port, err := net.SplitHostPort(at.udp)
	if err != nil {
		return plan{}, err
	}
	adminHost, adminPort, err := net.SplitHostPort(at.admin)
	if err != nil {
		return plan{}, err
	}
	settings, err := json.Marshal(map[string]any{
		"address": host, "port": json.Number(port),
		"mgmt_address": adminHost, "mgmt_port": json.Number(adminPort),
		"flushInterval": Flush.Milliseconds(),
		"backends":      []string{backend},
	})
	if err != nil {
		return plan{}, err
	}
	config, err := at.write("config.json", string(settings))
	return plan{
		command:  []string{"node", at.program, config},
		received: func(ctx context.Context) (Received, error) { return askStatsd(ctx, at.admin) },
	}, err
}

// askStatsd reads the counters at the management port. statsd's counters cover the time since the last
// flush, and our backend keeps the sum of earlier flushes. The order of the two requests matters: if a
// flush comes between their answers, the sum is too small for this one call, but it is never too large.
func askStatsd(ctx context.Context, address string) (Received, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return Received{}, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(answerLimit)); err != nil {
		return Received{}, err
	}
	answers := bufio.NewScanner(conn)
	var sum Received
	for _, command := range []string{"stats", "counters"} {
		if _, err := fmt.Fprintln(conn, command); err != nil {
			return Received{}, err
		}
		answer, err := statsdAnswer(answers)
		if err != nil {
			return Received{}, fmt.Errorf("%s of statsd: %w", command, err)
		}
		n, err := statsdReceived(answer)
		if err != nil {
			return Received{}, fmt.Errorf("%s of statsd: %w", command, err)
		}
		sum.Metrics += n
	}
	return sum, nil
}

// statsdAnswer reads up to the last line of an answer.
func statsdAnswer(lines *bufio.Scanner) (string, error) {
	var answer strings.Builder
	for lines.Scan() {
		if lines.Text() == "END" {
			return answer.String(), nil
		}
		answer.WriteString(lines.Text() + "\n")
	}
	if err := lines.Err(); err != nil {
		return "", err
	}
	return "", io.ErrUnexpectedEOF
}

var statsdMetrics = regexp.MustCompile(`statsd\.metrics_received'?: (\d+)`)

// statsdReceived finds the counter in an answer to the command `stats` or `counters`.
func statsdReceived(answer string) (uint64, error) { return submatch(statsdMetrics, []byte(answer)) }
